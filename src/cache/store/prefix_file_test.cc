// Goal: a prefix that left one store is the same in another, once; a file that is damaged, foreign,
// cut, or no chain changes nothing. Method: every byte of a file turned, records exchanged, all
// pairs of sealed and open stores; every byte that is read back is compared with what its key says.
#include "cache/store/prefix_file.h"

#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "base/file.h"
#include "cache/store/audit.h"
#include "cache/store/store_testing.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kN = 20;  // blocks of chain 1, in two segments

class PrefixFileTest : public StoreTest {
 protected:
  ~PrefixFileTest() override { fs::remove_all(folder() + "-files"); }

  void SetUp() override { fs::create_directory(folder() + "-files"); }
  std::string file() const { return folder() + "-files/prefix"; }
  std::string other() const { return folder() + "-files/store"; }
  std::string key_text(int64_t depth) const { return to_hex(chain_key(1, depth).digest); }

  void make_store() {
    const auto store = open(options());
    put_chain(*store, 1, 0, kN);
    put_chain(*store, 2, 0, kN);
  }
  PrefixReport exported(const ExportOptions& options = {}) const {
    const auto report = export_prefix(folder(), key_text(kN - 1), file(), options);
    EXPECT_TRUE(report) << report.error().message;
    return report ? *report : PrefixReport();
  }
  // An empty store in other().
  StoreOptions other_options(const std::optional<SecretKey>& key) const {
    StoreOptions result = options();
    result.folder = other();
    result.key = key;
    return result;
  }
  void make_other(const std::optional<SecretKey>& key = {}) const {
    fs::remove_all(other());
    open(other_options(key));
  }
  Result<PrefixReport> import(ImportOptions options = {}) const {
    options.segment_bytes = this->options().segment_bytes;
    return import_prefix(other(), file(), options);
  }
  std::string refusal(const ImportOptions& options = {}) const {
    const auto before = survey_store(other());
    const auto report = import(options);
    const auto after = survey_store(other());
    EXPECT_TRUE(before && after && before->bytes() == after->bytes());
    return report ? "none" : report.error().message;
  }
  static int64_t traces(const std::string& bytes) {
    int64_t found = 0;
    for (int64_t depth = 0; depth < kN; ++depth) {
      const auto payload = payload_of_key(chain_key(1, depth), kBlockBytes);
      const std::string_view text(reinterpret_cast<const char*>(payload.data()), payload.size());
      found += bytes.find(text.substr(1000, 32)) != std::string::npos ? 1 : 0;
    }
    return found;
  }
};

TEST_F(PrefixFileTest, APrefixIsTheSameInAnotherStoreOnce) {
  make_store();
  const PrefixReport report = exported();
  EXPECT_EQ(report.n_blocks, kN);
  EXPECT_EQ(report.last, chain_key(1, kN - 1));
  EXPECT_EQ(report.payload_bytes, kN * kBlockBytes);
  EXPECT_EQ(report.file_bytes, static_cast<int64_t>(fs::file_size(file())));
  EXPECT_FALSE(report.sealed);
  make_other();
  for (const int64_t n_added : {kN, int64_t{0}}) {
    const auto added = import();
    ASSERT_TRUE(added) << added.error().message;
    EXPECT_EQ(added->n_added, n_added);
    EXPECT_EQ(added->n_blocks, kN);
    const auto store = open(other_options({}));
    EXPECT_EQ(hits(*store, 1, kN), kN);
    EXPECT_EQ(hits(*store, 2, 1), 0);
  }
  const auto audit = audit_store(other(), {});
  ASSERT_TRUE(audit);
  EXPECT_EQ(audit->problems, std::vector<std::string>());
  EXPECT_EQ(audit->n_blocks, kN);
  EXPECT_EQ(audit->n_unindexed, 0);
}

TEST_F(PrefixFileTest, WhatIsThereIsNotAddedAgainAndTheRestIs) {
  make_store();
  exported();
  make_other();
  put_chain(*open(other_options({})), 1, 0, 7);
  EXPECT_EQ(import()->n_added, kN - 7);
  EXPECT_EQ(hits(*open(other_options({})), 1, kN), kN);
}

TEST_F(PrefixFileTest, AShorterPrefixAndAPartOfAKeyWillDo) {
  make_store();
  const auto report = export_prefix(folder(), key_text(4).substr(0, 16), file(), {});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->n_blocks, 5);
  struct stat status = {};
  ASSERT_EQ(::stat(file().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  make_other();
  EXPECT_EQ(import()->n_added, 5);
}

TEST_F(PrefixFileTest, BlocksThatAreNotThereAreNamedAndNothingIsWritten) {
  make_store();
  const std::string unknown(16, '0');
  EXPECT_EQ(export_prefix(folder(), unknown, file(), {}).error().message,
            folder() + ": block " + unknown + ": wanted one, found none");
  {
    const auto store = open(options());
    store->forget(chain_key(1, 3));
  }
  EXPECT_EQ(export_prefix(folder(), key_text(9), file(), {}).error().message,
            folder() + ": block " + key_text(3).substr(0, 16) + ": wanted it before block " +
                key_text(4).substr(0, 16) + ", found none");
  EXPECT_TRUE(export_prefix(folder(), key_text(2), file(), {}));
  fs::remove(file());
  std::string bytes = slurp(path("seg-00000001"));
  bytes.at(2 * kPageBytes + 1000) ^= 1;
  spill(path("seg-00000001"), bytes);
  EXPECT_EQ(export_prefix(folder(), key_text(2), file(), {}).error().message,
            path("seg-00000001") + ": byte 8192: record: payload checksum differs");
  EXPECT_TRUE(fs::is_empty(folder() + "-files"));
}

TEST_F(PrefixFileTest, EveryTurnedByteAndEveryCutIsRefused) {
  make_store();
  exported();
  make_other();
  const std::string sound = slurp(file());
  const std::string before = slurp(other() + "/index.mdb");
  std::mt19937 random(3);
  std::vector<size_t> places = {0, 21, 200, 4095, 4096, 4096 + 255, 8191, sound.size() - 1};
  for (int i = 0; i < 150; ++i) places.push_back(random() % sound.size());
  for (const size_t at : places) {
    std::string turned = sound;
    turned[at] ^= static_cast<char>(1 << random() % 8);
    spill(file(), turned);
    EXPECT_TRUE(refusal().starts_with(file() + ": ")) << at << ": " << refusal();
  }
  for (size_t size = 0; size < sound.size(); size += 2048) {
    spill(file(), sound.substr(0, size));
    EXPECT_TRUE(refusal().starts_with(file() + ": ")) << size << ": " << refusal();
  }
  spill(file(), sound + sound.substr(4096, 4096));
  EXPECT_NE(refusal().find("wanted the end of the file behind 20 blocks, found more"),
            std::string::npos)
      << refusal();
  EXPECT_EQ(slurp(other() + "/index.mdb"), before);
  spill(file(), sound);
  EXPECT_EQ(import()->n_added, kN);
}

// Records whose checksums are sound.
TEST_F(PrefixFileTest, WhatIsNoChainIsRefusedByItsBlock) {
  make_store();
  exported();
  make_other();
  const std::string sound = slurp(file());
  const auto with = [&](int64_t i, const std::function<void(RecordHead&)>& change) {
    std::string bytes = sound;
    const auto record = std::as_writable_bytes(
        std::span(bytes).subspan(static_cast<size_t>((i + 1) * kPageBytes), kPageBytes));
    const StoreIdentity identity = survey_store(other())->identity;
    RecordHead head = *open_record(record, identity);
    change(head);
    seal_record(head, identity, record);
    spill(file(), bytes);
    return refusal();
  };
  const std::string at = file() + ": byte 16384: block " + key_text(3).substr(0, 16) + ": wanted ";
  EXPECT_EQ(
      with(3, [](RecordHead& head) { head.block.parent = chain_key(1, 1); }),
      at + "block " + key_text(2).substr(0, 16) + " before it, found " + key_text(1).substr(0, 16));
  EXPECT_EQ(with(3, [](RecordHead& head) { head.block.first_position = 256; }),
            at + "position 192, found 256");
  EXPECT_EQ(with(3, [](RecordHead& head) { head.block.tenant_tag = 2; }),
            at + "tenant 0000000000000001, found 0000000000000002");
  EXPECT_NE(with(2, [](RecordHead& head) { head.block.grade = StateGrade::kBounded; })
                .find("found an exact"),
            std::string::npos);
  EXPECT_NE(with(0, [](RecordHead& head) { head.block.first_position = 64; })
                .find(": wanted position 0, found 64"),
            std::string::npos);
  EXPECT_NE(with(kN - 1, [](RecordHead& head) { head.block.key = chain_key(9, 9); })
                .find("last, found " + to_hex(chain_key(9, 9).digest).substr(0, 16)),
            std::string::npos);
  EXPECT_EQ(with(3, [](RecordHead& head) { head.place.page = 9; }),
            file() + ": byte 16384: record: another place's");
}

TEST_F(PrefixFileTest, AnotherModelsPrefixIsRefusedByName) {
  make_store();
  exported();
  const auto refused = [&](const std::function<void(StoreIdentity&)>& change) {
    fs::remove_all(other());
    StoreOptions options = other_options({});
    change(options.identity);
    open(options);
    return refusal();
  };
  const std::string where = file() + ": byte 0: wanted a prefix for " + other() + ": wanted '";
  EXPECT_TRUE(
      refused([](StoreIdentity& of) { of.weights.fill(9); }).starts_with(where + "weights 0909"));
  EXPECT_TRUE(refused([](StoreIdentity& of) { of.spec.fill(9); }).starts_with(where + "spec 0909"));
  EXPECT_TRUE(refused([](StoreIdentity& of) {
                of.block_bytes = 3001;
              }).starts_with(where + "block bytes 3001', found 'block bytes 3000'"));
  spill(file(), std::string(8192, 'x'));
  EXPECT_EQ(refusal(), file() + ": wanted a prefix file of format 1, found another");
}

TEST_F(PrefixFileTest, AStoreInUseIsReadAndNotWritten) {
  make_store();
  const auto user = open(options());
  exported();
  make_other();
  {
    const auto used = open(other_options({}));
    EXPECT_NE(refusal().find("found another process"), std::string::npos) << refusal();
  }
  EXPECT_EQ(import()->n_added, kN);
  fs::remove_all(other());
  EXPECT_EQ(import().error().message, other() + ": no such folder");
  EXPECT_FALSE(fs::exists(other()));
}

// What is sealed leaves sealed, and is in clear only where somebody asked for it.
TEST_F(PrefixFileTest, WhatIsSealedStaysSealedUnlessAskedFor) {
  key_ = key_of(5);
  make_store();
  EXPECT_TRUE(exported().sealed);
  EXPECT_EQ(traces(slurp(file())), 0);
  make_other();
  EXPECT_EQ(refusal({.file_key = key_}),
            file() +
                ": byte 0: file: wanted a sealed store for what is sealed, or --clear, found " +
                other() + " in clear");
  EXPECT_EQ(refusal({.clear = true}),
            file() + ": byte 0: file: wanted the key that it is sealed with, found none");
  EXPECT_EQ(import({.file_key = key_, .clear = true})->n_added, kN);
  EXPECT_EQ(hits(*open(other_options({})), 1, kN), kN);

  make_other(key_of(6));
  EXPECT_EQ(refusal({.key = key_of(6)}),
            file() + ": byte 0: file: wanted the key that it is sealed with, found another");
  EXPECT_EQ(refusal({.key = key_of(5)}),
            other() + "/store.fathom: wanted the key that it is sealed with, found another");
  EXPECT_EQ(import({.key = key_of(6), .file_key = key_})->n_added, kN);
  EXPECT_EQ(hits(*open(other_options(key_of(6))), 1, kN), kN);
  make_other(key_);
  EXPECT_EQ(import({.key = key_})->n_added, kN);
  EXPECT_EQ(import({.key = key_})->n_added, 0);
  EXPECT_EQ(hits(*open(other_options(key_)), 1, kN), kN);
}

TEST_F(PrefixFileTest, WhatIsUnsealedOnRequestIsSealedInASealedStore) {
  key_ = key_of(5);
  make_store();
  EXPECT_FALSE(export_prefix(folder(), key_text(1), file(), {.clear = true}));
  EXPECT_FALSE(export_prefix(folder(), key_text(1), file(), {.clear = true, .key = key_of(6)}));
  EXPECT_FALSE(fs::exists(file()));
  EXPECT_FALSE(exported({.clear = true, .key = key_}).sealed);
  EXPECT_EQ(traces(slurp(file())), kN);
  make_other(key_of(6));
  EXPECT_EQ(import({.key = key_of(6)})->n_added, kN);
  std::string bytes;
  for (const auto& entry : fs::directory_iterator(other())) bytes += slurp(entry.path().string());
  EXPECT_EQ(traces(bytes), 0);
  EXPECT_EQ(hits(*open(other_options(key_of(6))), 1, kN), kN);
}

// A forger knows the checksums and not the key.
TEST_F(PrefixFileTest, AForgedRecordOfASealedFileIsRefused) {
  key_ = key_of(5);
  make_store();
  exported();
  make_other(key_);
  std::string bytes = slurp(file());
  const auto record = std::as_writable_bytes(std::span(bytes).subspan(3 * kPageBytes, kPageBytes));
  const StoreIdentity identity = survey_store(folder())->identity;
  const Sealer forger(key_of(9));
  seal_record(*open_record(record, identity), identity, record, &forger);
  spill(file(), bytes);
  EXPECT_EQ(refusal({.key = key_}),
            file() + ": byte 12288: record: not sealed with the file's key");
}

TEST_F(PrefixFileTest, AFailureAtAnyTransferLosesNothingAndIsMadeGood) {
  make_store();
  exported();
  int n_failed = 0;
  for (int fails_at = 0;; ++fails_at) {
    SCOPED_TRACE(fails_at);
    make_other();
    put_chain(*open(other_options({})), 3, 0, 5);
    const auto disk = system_disk(other(), DiskRoad::kPlain);
    FaultyDisk faulty(*disk);
    int n = 0;
    faulty.judge = [&](const IoRequest& request) {
      const auto size = static_cast<int64_t>(request.bytes.size());
      if (n++ < fails_at) return FaultyDisk::Verdict();
      return FaultyDisk::Verdict{false, size / 2 / kPageBytes * kPageBytes, -ENOSPC};
    };
    const bool done = import({.disk = &faulty}).has_value();
    if (!done) {
      ++n_failed;
      EXPECT_EQ(hits(*open(other_options({})), 3, 5), 5);
      EXPECT_TRUE(import());
    }
    EXPECT_EQ(hits(*open(other_options({})), 1, kN), kN);
    EXPECT_EQ(hits(*open(other_options({})), 3, 5), 5);
    if (done) break;
  }
  EXPECT_GT(n_failed, 3);
}

}  // namespace
}  // namespace fathom
