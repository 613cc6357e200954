// Goal: the audit names every damage of a store with its file and place, and nothing of a store
// that is sound, in use, or whose writer died. Method: stores whose bytes are turned one at a time,
// at every kind of place.
#include "cache/store/audit.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <thread>

#include "base/file.h"
#include "cache/store/segment_scan.h"
#include "cache/store/store_testing.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

class AuditTest : public StoreTest {
 protected:
  // Three segments, the last of them not full.
  void make_store() {
    const auto store = open(options());
    put_chain(*store, 1, 0, 20);
    put_chain(*store, 2, 0, 20);
  }
  AuditReport audit() const {
    const auto report = audit_store(folder(), {});
    EXPECT_TRUE(report) << report.error().message;
    return report ? *report : AuditReport();
  }
  // Turns a byte, looks, and turns it back.
  AuditReport audit_with_turned(const std::string& name, size_t at) const {
    std::string bytes = slurp(path(name));
    bytes.at(at) ^= 0x10;
    spill(path(name), bytes);
    const AuditReport report = audit();
    bytes.at(at) ^= 0x10;
    spill(path(name), bytes);
    return report;
  }

  static bool same_rows(const std::vector<IndexRow>& a, const std::vector<IndexRow>& b) {
    return std::ranges::equal(a, b, [](const IndexRow& x, const IndexRow& y) {
      return x.head.place == y.head.place && x.head.block.key == y.head.block.key &&
             x.head.block.tenant_tag == y.head.block.tenant_tag && x.n_uses == y.n_uses &&
             x.head.created_us == y.head.created_us && x.head.payload_bytes == y.head.payload_bytes;
    });
  }
};

TEST_F(AuditTest, ASoundStoreHasNoProblems) {
  make_store();
  const AuditReport report = audit();
  EXPECT_EQ(report.problems, std::vector<std::string>());
  EXPECT_EQ(report.n_blocks, 40);
  EXPECT_EQ(report.n_segments, 3);
  EXPECT_EQ(report.n_unindexed, 0);
  EXPECT_EQ(report.torn_bytes, 0);
  EXPECT_EQ(report.bytes, 43 * kPageBytes);
}

TEST_F(AuditTest, EveryTurnedByteOfASegmentIsNamed) {
  make_store();
  std::mt19937 random(7);
  std::vector<size_t> places = {0, 8, 40, 103, 104, 4095, 4096, 4096 + 255, 4096 + 256};
  for (int i = 0; i < 60; ++i) places.push_back(random() % (16 * kPageBytes));
  for (const size_t at : places) {
    SCOPED_TRACE(at);
    const AuditReport report = audit_with_turned("seg-00000002", at);
    ASSERT_EQ(report.problems.size(), 1U);
    const std::string page = std::to_string(at / kPageBytes * kPageBytes);
    EXPECT_TRUE(report.problems[0].starts_with(path("seg-00000002") + ": byte " + page + ": "))
        << report.problems[0];
  }
  EXPECT_TRUE(audit().problems.empty());
}

// Of segments every byte but those behind a record's end counts; of the index, what its rows say.
TEST_F(AuditTest, EveryDamageIsNamedThatChangesWhatIsRead) {
  make_store();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const std::vector<IndexRow> rows = survey_store(folder())->rows;
  const std::vector<std::string> names = {"seg-00000001", "seg-00000002", "seg-00000003",
                                          "index.mdb"};
  int64_t n_named = 0;
  for (int i = 0; i < 150; ++i) {
    const std::string& name = names.at(random() % names.size());
    const std::string whole = slurp(path(name));
    std::string damaged = whole;
    const size_t at = random() % whole.size();
    switch (random() % 4) {
      case 0:
        damaged.resize(at);
        break;
      case 1:
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
        break;
      case 2:
        damaged.replace(at / 512 * 512, 512 * (1 + random() % 10), 512, '\0');
        damaged.resize(whole.size());
        break;
      default:
        for (size_t k = at; k < std::min(whole.size(), at + 100); ++k) {
          damaged[k] = static_cast<char>(random());
        }
    }
    spill(path(name), damaged);
    const AuditReport report = audit();
    n_named += report.problems.empty() ? 0 : 1;
    if (report.problems.empty() && damaged != whole) {
      EXPECT_EQ(name, "index.mdb") << i << ": byte " << at;
      EXPECT_TRUE(same_rows(survey_store(folder())->rows, rows)) << i << ": byte " << at;
    }
    spill(path(name), whole);
  }
  EXPECT_TRUE(audit().problems.empty());
  EXPECT_GT(n_named, 90);
}

TEST_F(AuditTest, CutAndLostFilesAreNamed) {
  make_store();
  const std::string whole = slurp(path("seg-00000002"));
  spill(path("seg-00000002"), whole.substr(0, 10 * kPageBytes + 700));
  EXPECT_EQ(audit().problems.size(), 6U);
  fs::remove(path("seg-00000002"));
  const AuditReport lost = audit();
  ASSERT_EQ(lost.problems.size(), 1U);
  EXPECT_EQ(lost.problems[0],
            path("seg-00000002") + ": wanted the segment of 15 rows, found no file");
  spill(path("seg-00000002"), whole);
  EXPECT_TRUE(audit().problems.empty());
  fs::remove(path("index.mdb"));
  const AuditReport without = audit();
  ASSERT_EQ(without.problems.size(), 1U);
  EXPECT_EQ(without.problems[0], path("index.mdb") + ": wanted the index, found none");
  EXPECT_EQ(without.n_unindexed, 40);
}

TEST_F(AuditTest, AnIndexThatSaysAnotherThingIsNamed) {
  make_store();
  auto index = StoreIndex::open(path("index.mdb"), int64_t{64} << 20);
  ASSERT_TRUE(index);
  auto rows = *index->rows();
  rows.at(3).head.block.tenant_tag ^= 1;
  ASSERT_TRUE(index->commit({.add = {rows.at(3)}, .remove = {rows.at(5).head.place}}));
  const AuditReport report = audit();
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_NE(report.problems[0].find(": byte 16384: record: wanted what the index says"),
            std::string::npos)
      << report.problems[0];
  EXPECT_EQ(report.n_unindexed, 1);
}

TEST_F(AuditTest, WhatADeadWriterLeftIsNoDamage) {
  make_store();
  const std::string bytes = slurp(path("seg-00000003"));
  spill(path("seg-00000003"), bytes + bytes.substr(kPageBytes, 6000));  // another place's, torn
  spill(path("seg-00000004"), "");
  const AuditReport report = audit();
  EXPECT_EQ(report.problems, std::vector<std::string>());
  EXPECT_EQ(report.torn_bytes, 6000);
  EXPECT_EQ(report.n_blocks, 40);
}

TEST_F(AuditTest, AStoreInUseIsReadBesideItsWriter) {
  const auto store = open(options());
  put_chain(*store, 0, 0, 8);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (int64_t chain = 1; !stop; ++chain) {
      put_chain(*store, static_cast<uint64_t>(chain), 0, 8);
      store->forget(chain_key(static_cast<uint64_t>(chain), 3));
    }
  });
  for (int i = 0; i < 20; ++i) {
    const AuditReport report = audit();
    EXPECT_EQ(report.problems, std::vector<std::string>());
    EXPECT_GE(report.n_blocks, 8);
  }
  stop = true;
  writer.join();
}

// Permissions do not bind root, who gives his up for the time of the test.
TEST_F(AuditTest, AReadOnlyFolderIsReadAndNotWritten) {
  make_store();
  const bool was_root = ::geteuid() == 0;
  ASSERT_EQ(::chmod(folder().c_str(), 0555), 0);
  for (const auto& entry : fs::directory_iterator(folder_)) {
    ASSERT_EQ(::chmod(entry.path().c_str(), 0444), 0);
  }
  ASSERT_EQ(was_root ? ::seteuid(65534) : 0, 0);
  const auto report = audit_store(folder(), {});
  const bool written = std::ofstream(path("new")).is_open();
  ASSERT_EQ(was_root ? ::seteuid(0) : 0, 0);
  EXPECT_FALSE(written);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->problems.empty());
  EXPECT_EQ(report->n_blocks, 40);
}

TEST_F(AuditTest, OtherFoldersAreRefusedByName) {
  const auto error = [&] {
    const auto survey = survey_store(folder());
    return survey ? std::string("none") : survey.error().message;
  };
  EXPECT_EQ(error(), folder() + ": no such folder");
  spill(folder(), "a file");
  EXPECT_EQ(error(), folder() + ": expected a folder");
  fs::remove(folder_);
  fs::create_directory(folder_);
  EXPECT_EQ(error(), folder() + ": wanted a store, found no store.fathom");
  fs::remove_all(folder_);
  make_store();
  const std::string card = slurp(path("store.fathom"));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = card;
    changed.replace(changed.find(from), from.size(), to);
    spill(path("store.fathom"), changed);
    return error();
  };
  const std::string where = path("store.fathom") + ": ";
  EXPECT_EQ(with("format 1", "format 9"), where + "card: wanted 'format 1', found 'format 9'");
  EXPECT_EQ(with("format 1", "format 2"), where + "wanted 'salt ' and 64 digits, found ''");
  EXPECT_EQ(with("little", "middle"),
            where + "card: wanted 'byte order little', found 'byte order middle'");
  EXPECT_TRUE(with("spec 02", "spec 0x").starts_with(where + "wanted 'spec ' and 64 digits"));
  EXPECT_EQ(with("bytes 3000", "bytes 0"),
            where + "card: wanted 'block bytes ' from 1 to 2^28, found 'block bytes 0'");
  EXPECT_TRUE(with("bytes 3000\n", "bytes 3000\nmore\n").starts_with(where + "wanted no more"));
  spill(path("store.fathom"), "");
  EXPECT_TRUE(error().starts_with(where + "card: wanted 'fathom prefix store'"));
  spill(path("store.fathom"), card);
  EXPECT_EQ(error(), "none");
}

TEST_F(AuditTest, TagsAreReadAsTheyAreWritten) {
  for (const uint64_t tag : {uint64_t{0}, uint64_t{0xabc}, UINT64_MAX}) {
    EXPECT_EQ(*parse_tag(tag_text(tag)), tag);
  }
  for (const char* text :
       {"", "abc", "0000000000000abcd", "000000000000ABCD", "00000000000000x1"}) {
    EXPECT_FALSE(parse_tag(text)) << text;
  }
}

}  // namespace
}  // namespace fathom
