// Goal: `fathom store` tells what a store holds and what is wrong with it, and refuses what is
// none. Method: the built program on stores of the library, whole and damaged.
#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <filesystem>

#include "cache/store/store_testing.h"
#include "program.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

using Words = std::vector<std::string>;

class StoreVerb : public StoreTest {
 protected:
  // Two chains of two tenants in three segments, just written.
  StoreOptions now() const {
    StoreOptions result = options();
    result.unix_us = {};
    return result;
  }
  void make_store() {
    const auto store = open(now());
    put_chain(*store, 1, 0, 20);
    put_chain(*store, 2, 0, 20);
  }
  // store JOB FOLDER and more words.
  Outcome store(const std::string& job, const Words& more = {}) const {
    Words args = {"store", job, folder()};
    args.insert(args.end(), more.begin(), more.end());
    return run_program({.args = args});
  }
  json::object result_of(const std::string& job, Words more = {}) const {
    more.push_back("--json");
    const Outcome outcome = store(job, more);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    return json::parse(outcome.out).as_object();
  }
  void expect_failure(const Outcome& outcome, const std::string& part) const {
    EXPECT_EQ(outcome.status, 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_TRUE(outcome.err.starts_with("fathom: ")) << outcome.err;
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }
};

TEST_F(StoreVerb, StatCountsBlocksByAgeAndTenant) {
  make_store();
  const json::object stat = result_of("stat");
  EXPECT_EQ(stat.at("format").as_int64(), 1);
  EXPECT_TRUE(stat.at("spec").as_string().starts_with("0202"));
  EXPECT_EQ(stat.at("blocks").as_int64(), 40);
  EXPECT_EQ(stat.at("payload_bytes").as_int64(), 40 * kBlockBytes);
  EXPECT_EQ(stat.at("dead_bytes").as_int64(), 0);
  EXPECT_EQ(stat.at("segments").as_int64(), 3);
  EXPECT_EQ(stat.at("by_age").as_array().at(0).at("blocks").as_int64(), 40);
  const json::array& tenants = stat.at("by_tenant").as_array();
  ASSERT_EQ(tenants.size(), 2U);
  EXPECT_EQ(tenants[1].at("tenant").as_string(), "0000000000000002");
  EXPECT_EQ(tenants[1].at("blocks").as_int64(), 20);
  const Outcome text = store("stat");
  EXPECT_EQ(text.status, 0);
  EXPECT_NE(text.out.find("tenant 0000000000000001: 20 blocks, 60000 bytes\n"), std::string::npos);
}

TEST_F(StoreVerb, CheckNamesDamageByFileAndByte) {
  make_store();
  EXPECT_EQ(result_of("check").at("blocks").as_int64(), 40);
  std::string bytes = slurp(path("seg-00000001"));
  bytes.at(5 * kPageBytes + 300) ^= 1;
  spill(path("seg-00000001"), bytes);
  const Outcome outcome = store("check");
  EXPECT_EQ(outcome.status, 1);
  const std::string where = path("seg-00000001") + ": byte 20480: record: payload checksum differs";
  EXPECT_TRUE(outcome.out.starts_with(where)) << outcome.out;
  EXPECT_TRUE(outcome.err.starts_with("fathom: " + folder() + ": wanted no problems, found 1"))
      << outcome.err;
  spill(path("seg-00000001"), bytes.substr(0, 5 * kPageBytes));
  const Outcome cut = store("check", {"--json"});
  EXPECT_EQ(cut.status, 1);
  EXPECT_EQ(json::parse(cut.out).at("problems").as_array().size(), 11U);
}

TEST_F(StoreVerb, FoldersThatAreNoStoreAreRefusedAndLeftAlone) {
  for (const char* job : {"stat", "ls", "check", "scrub", "compact"}) {
    SCOPED_TRACE(job);
    fs::remove_all(folder_);
    expect_failure(store(job), folder() + ": no such folder");
    EXPECT_FALSE(fs::exists(folder_));
    fs::create_directory(folder_);
    expect_failure(store(job), folder() + ": wanted a store, found no store.fathom");
    EXPECT_TRUE(fs::is_empty(folder_));
    make_store();
    std::string card = slurp(path("store.fathom"));
    card.replace(card.find("format 1"), 8, "format 9");
    spill(path("store.fathom"), card);
    expect_failure(store(job),
                   path("store.fathom") + ": card: wanted 'format 1', found 'format 9'");
  }
}

TEST_F(StoreVerb, AStoreInUseIsCountedAndNotChecked) {
  make_store();
  const auto user = open(now());
  expect_failure(store("check"), folder() + ": wanted to write there alone, found another process");
  EXPECT_EQ(result_of("stat").at("blocks").as_int64(), 40);
}

TEST_F(StoreVerb, LsNamesBlocksAndChains) {
  make_store();
  const json::array blocks = result_of("ls").at("blocks").as_array();
  ASSERT_EQ(blocks.size(), 40U);
  EXPECT_EQ(blocks[1].at("key").as_string(), to_hex(chain_key(1, 1).digest));
  EXPECT_EQ(blocks[1].at("parent").as_string(), to_hex(chain_key(1, 0).digest));
  EXPECT_EQ(blocks[1].at("position").as_int64(), 64);
  EXPECT_LT(blocks[1].at("age_s").as_double(), 600);
  const Words of_one = {"--tenant", "0000000000000002"};
  const Outcome lines = store("ls", {"--jsonl", of_one[0], of_one[1]});
  EXPECT_EQ(std::ranges::count(lines.out, '\n'), 20);
  EXPECT_EQ(json::parse(lines.out.substr(0, lines.out.find('\n'))).at("tenant").as_string(),
            "0000000000000002");
  const json::array chains = result_of("ls", {"--chains"}).at("chains").as_array();
  ASSERT_EQ(chains.size(), 2U);
  EXPECT_EQ(chains[0].at("blocks").as_int64(), 20);
  EXPECT_EQ(chains[0].at("first_position").as_int64(), 0);
  EXPECT_EQ(chains[0].at("bytes").as_int64(), 20 * kBlockBytes);
  const Outcome text = store("ls", {"--chains"});
  const std::string key = to_hex(chain_key(1, 19).digest).substr(0, 16);
  EXPECT_TRUE(text.out.starts_with(key + " blocks 20 from position 0 age ")) << text.out;
}

TEST_F(StoreVerb, AnErasedTenantIsNowhereInTheFolder) {
  make_store();
  const auto found = [&](uint64_t chain) {
    std::string bytes;
    for (const auto& entry : fs::directory_iterator(folder_)) bytes += slurp(entry.path().string());
    int64_t n = 0;
    for (int64_t depth = 0; depth < 20; ++depth) {
      const auto payload = payload_of_key(chain_key(chain, depth), kBlockBytes);
      n += bytes.find(reinterpret_cast<const char*>(payload.data()), 0, 64) != std::string::npos;
    }
    return n;
  };
  ASSERT_EQ(found(1), 20);
  const json::object erased = result_of("erase", {"--tenant", "0000000000000001"});
  EXPECT_EQ(erased.at("erased").as_int64(), 20);
  EXPECT_EQ(found(1), 0);
  EXPECT_EQ(found(2), 20);
  EXPECT_EQ(result_of("check").at("blocks").as_int64(), 20);
  const auto again = open(now());
  EXPECT_EQ(hits(*again, 2, 20), 20);
}

TEST_F(StoreVerb, CompactTakesWhatWasForgotten) {
  make_store();
  {
    const auto store = open(now());
    for (int64_t depth = 0; depth < 20; depth += 2) {
      for (const uint64_t chain : {1, 2}) store->forget(chain_key(chain, depth));
    }
  }
  EXPECT_EQ(result_of("stat").at("dead_bytes").as_int64(), 20 * kPageBytes);
  // A setting for other jobs erases nothing.
  const std::string settings = path("settings.toml");
  spill(settings, "[store]\ntenant = \"0000000000000002\"\n");
  EXPECT_EQ(result_of("compact", {"--config", settings}).at("rewritten").as_int64(), 3);
  EXPECT_EQ(result_of("stat").at("dead_bytes").as_int64(), 0);
  EXPECT_EQ(result_of("check").at("blocks").as_int64(), 20);
}

TEST_F(StoreVerb, ScrubLooksAtAStoreInUseAtItsRate) {
  make_store();
  const auto user = open(now());
  const auto begin = std::chrono::steady_clock::now();
  // 43 pages.
  EXPECT_EQ(result_of("scrub", {"--rate", "172K"}).at("blocks").as_int64(), 40);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(990));
  std::string bytes = slurp(path("seg-00000002"));
  bytes.at(2 * kPageBytes + 1000) ^= 1;
  spill(path("seg-00000002"), bytes);
  const Outcome outcome = store("scrub");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.out.find("seg-00000002: byte 8192: "), std::string::npos) << outcome.out;
  for (const Words& args : {Words{"compact"}, {"erase", "--tenant", "0000000000000001"}}) {
    expect_failure(store(args[0], {args.begin() + 1, args.end()}),
                   "wanted to write there alone, found another process writing");
  }
}

TEST_F(StoreVerb, ASealedStoreIsCountedCheckedAndErasedWithoutItsKey) {
  key_ = key_of(0x55);
  make_store();
  EXPECT_EQ(result_of("stat").at("format").as_int64(), 2);
  EXPECT_TRUE(result_of("stat").at("sealed").as_bool());
  EXPECT_EQ(result_of("ls").at("blocks").as_array().size(), 40U);
  EXPECT_EQ(result_of("check").at("blocks").as_int64(), 40);
  spill(path("key"), std::string(32, 0x55));
  EXPECT_EQ(result_of("check", {"--store-key", path("key")}).at("blocks").as_int64(), 40);
  spill(path("key"), std::string(64, '6') + "\n");
  expect_failure(store("scrub", {"--store-key", path("key")}),
                 path("store.fathom") + ": wanted the key that it is sealed with, found");
  spill(path("key"), "secret");
  const Outcome outcome = store("check", {"--store-key", path("key")});
  expect_failure(outcome, path("key") + ": wanted a key of 32 bytes or 64 hexadecimal digits, fo");
  EXPECT_EQ(outcome.err.find("secret"), std::string::npos);
  fs::remove(path("key"));
  EXPECT_EQ(result_of("erase", {"--tenant", "0000000000000001"}).at("erased").as_int64(), 20);
  EXPECT_EQ(hits(*open(now()), 2, 20), 20);
}

TEST_F(StoreVerb, APrefixGoesFromOneStoreToAnotherAsAFile) {
  make_store();
  const std::string file = path("prefix");
  const std::string last = to_hex(chain_key(1, 19).digest);
  const json::object exported = result_of("export", {"--block", last.substr(0, 16), "-o", file});
  EXPECT_EQ(exported.at("key").as_string(), last);
  EXPECT_EQ(exported.at("blocks").as_int64(), 20);
  EXPECT_FALSE(exported.at("sealed").as_bool());
  const std::string prefix = slurp(file);
  fs::remove_all(folder_);
  key_ = key_of(0x55);
  put_chain(*open(now()), 2, 0, 20);
  spill(file, prefix);
  spill(path("key"), std::string(32, 0x55));
  expect_failure(store("import", {"-f", file}),
                 "wanted the key that it is sealed with, found none");
  const Words with_key = {"-f", file, "--store-key", path("key")};
  EXPECT_EQ(result_of("import", with_key).at("added").as_int64(), 20);
  EXPECT_EQ(result_of("import", with_key).at("added").as_int64(), 0);
  EXPECT_EQ(result_of("check", {"--store-key", path("key")}).at("blocks").as_int64(), 40);
  const Outcome sealed = store("export", {"--block", last, "-o", file});
  EXPECT_EQ(sealed.out, file + ": 20 blocks, 60000 bytes, sealed\n") << sealed.err;
  EXPECT_NE(slurp(file), prefix);
  EXPECT_EQ(hits(*open(now()), 1, 20), 20);
}

TEST_F(StoreVerb, WrongUsageIsALine) {
  for (const Words& args : {Words{"store"},
                            {"store", "stat"},
                            {"store", "frob", folder()},
                            {"store", "stat", folder(), "more"},
                            {"store", "erase", folder()},
                            {"store", "erase", folder(), "--tenant", "1"},
                            {"store", "stat", folder(), "--tenant", "0000000000000001"},
                            {"store", "check", folder(), "--rate", "1M"},
                            {"store", "stat", folder(), "--store-key", "key"},
                            {"store", "export", folder(), "-o", "file"},
                            {"store", "export", folder(), "--block", std::string(16, '0')},
                            {"store", "export", folder(), "--block", "0123", "-o", "file"},
                            {"store", "export", folder(), "--block", std::string(16, '0'), "-o",
                             "file", "--store-key", "key"},
                            {"store", "import", folder()},
                            {"store", "import", folder(), "-f", "file", "--rate", "1M"},
                            {"store", "check", folder(), "--clear"},
                            {"store", "ls", folder(), "--json", "--jsonl"}}) {
    const Outcome outcome = run_program({.args = args});
    EXPECT_EQ(outcome.status, 2) << args.back();
    EXPECT_TRUE(outcome.err.ends_with("; see fathom store --help\n")) << outcome.err;
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
  }
}

}  // namespace
}  // namespace fathom
