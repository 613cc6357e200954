// Goal: the small values every floor stands on. Method: each against its definition.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <numeric>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/flags.h"
#include "base/folder_testing.h"
#include "base/hash.h"
#include "base/result.h"
#include "base/temporary.h"
#include "base/thread_pool.h"

namespace fathom {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return invalid("half: wanted an even number, found " + std::to_string(n));
  return n / 2;
}

Result<int> quarter(int n) {
  FATHOM_ASSIGN_OR_RETURN(const int once, half(n));
  FATHOM_ASSIGN_OR_RETURN(const int twice, half(once));
  return twice;
}

TEST(Result, AssignOrReturnPassesValuesAndErrors) {
  EXPECT_EQ(*quarter(12), 3);
  ASSERT_FALSE(quarter(6));
  EXPECT_EQ(quarter(6).error().message, "half: wanted an even number, found 3");
}

TEST(Sha256, EqualsThePublishedVector) {
  const std::string text = "abc";
  EXPECT_EQ(to_hex(sha256(std::as_bytes(std::span(text)))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, DigestsAreEqualWhereEveryByteIs) {
  const Sha256Digest digest = secret_bytes();
  EXPECT_NE(digest, secret_bytes());
  EXPECT_TRUE(equal_in_constant_time(digest, Sha256Digest(digest)));
  for (size_t i = 0; i < digest.size(); ++i) {
    Sha256Digest other = digest;
    other[i] ^= 128;
    EXPECT_FALSE(equal_in_constant_time(digest, other));
  }
}

TEST(Flags, AnEmptySecretIsNotAnAbsentOne) {
  ASSERT_EQ(::setenv("FATHOM_TEST_SECRET", "s", 1), 0);
  EXPECT_EQ(secret_of_environment("FATHOM_TEST_SECRET"), "s");
  ASSERT_EQ(::setenv("FATHOM_TEST_SECRET", "", 1), 0);
  EXPECT_EQ(secret_of_environment("FATHOM_TEST_SECRET"), "");
  ASSERT_EQ(::unsetenv("FATHOM_TEST_SECRET"), 0);
  EXPECT_FALSE(secret_of_environment("FATHOM_TEST_SECRET"));
}

TEST(File, AtomicWriteReplacesAndReadRefusesTooMuch) {
  const std::string path = testing::TempDir() + "/fathom_file_test_" + std::to_string(::getpid());
  ASSERT_TRUE(write_file_atomic(path, "first"));
  ASSERT_TRUE(write_file_atomic(path, "second"));
  EXPECT_EQ(*read_file(path), "second");
  EXPECT_EQ(read_file(path, 3).error().code, ErrorCode::kExhausted);
  EXPECT_EQ(MappedFile::open(path)->bytes().size(), 6u);
  std::filesystem::remove(path);
  EXPECT_EQ(read_file(path).error().code, ErrorCode::kNotFound);
}

class WrittenFolder : public FolderTest {
 protected:
  WrittenFolder() { std::filesystem::create_directories(folder_); }
  std::string file(const char* name) const { return (folder_ / name).string(); }
  int64_t n_files() const {
    return std::distance(std::filesystem::directory_iterator(folder_), {});
  }
  void touch(const char* name) const { std::ofstream(folder_ / name) << "x"; }
};

TEST_F(WrittenFolder, PipesAndDevicesAreRefusedAtOnce) {
  ASSERT_EQ(::mkfifo(file("pipe").c_str(), 0600), 0);
  for (const std::string& path : {file("pipe"), std::string("/dev/zero"), folder()}) {
    EXPECT_NE(read_file(path).error().message.find("expected a regular file"), std::string::npos);
    EXPECT_NE(MappedFile::open(path).error().message.find("expected a regular file"),
              std::string::npos);
  }
}

TEST_F(WrittenFolder, AnOptionalFileIsThereOrAbsentOrAnError) {
  namespace fs = std::filesystem;
  touch("file");
  fs::create_directory(file("folder"));
  fs::create_symlink("file", file("to_file"));
  fs::create_symlink("folder", file("to_folder"));
  fs::create_symlink("nothing", file("dangling"));
  fs::create_symlink("loop", file("loop"));
  for (const char* name : {"file", "to_file"}) {
    EXPECT_TRUE(*has_file(file(name)));
    EXPECT_FALSE(has_folder(file(name)));
  }
  for (const char* name : {"folder", "to_folder"}) {
    EXPECT_TRUE(*has_folder(file(name)));
    EXPECT_FALSE(has_file(file(name)));
  }
  EXPECT_FALSE(*has_file(file("nothing")));
  EXPECT_FALSE(*has_folder(file("nothing/at/all")));
  for (const char* name : {"dangling", "loop"}) {
    EXPECT_EQ(has_file(file(name)).error().message,
              file(name) + ": wanted a file or none, found a link that leads nowhere");
    EXPECT_FALSE(has_folder(file(name)));
  }
  EXPECT_FALSE(has_file(file("file/below")));
  EXPECT_FALSE(has_file(folder() + "/" + std::string(300, 'x')));
}

TEST_F(WrittenFolder, WritingReplacesNoDeviceAndNoLink) {
  ASSERT_EQ(::mkfifo(file("pipe").c_str(), 0600), 0);
  for (const std::string& path : {file("pipe"), folder()}) {
    EXPECT_EQ(write_file_atomic(path, "x").error().message, path + ": expected a regular file");
  }
  std::filesystem::create_symlink("target", file("link"));
  for (const char* text : {"first", "second"}) {
    ASSERT_TRUE(write_file_atomic(file("link"), text));
    EXPECT_EQ(*read_file(file("target")), text);
    EXPECT_TRUE(std::filesystem::is_symlink(file("link")));
  }
  EXPECT_TRUE(std::filesystem::is_fifo(file("pipe")));
}

TEST_F(WrittenFolder, TwoWritersOfOneFileNeverShareBytes) {
  const std::string texts[2] = {std::string(100'000, 'a'), std::string(70'000, 'b')};
  const auto write = [&](int which) {
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(write_file_atomic(file("f"), texts[which]));
  };
  std::thread first(write, 0);
  write(1);
  first.join();
  const std::string found = *read_file(file("f"));
  EXPECT_TRUE(found == texts[0] || found == texts[1]);
  EXPECT_EQ(n_files(), 1);
}

TEST_F(WrittenFolder, ADroppedTemporaryFileIsGoneAndALiveOneStays) {
  {
    const auto dropped = TemporaryFile::create(file("f")).value();
    EXPECT_TRUE(std::filesystem::exists(dropped.name()));
  }
  EXPECT_EQ(n_files(), 0);
  auto live = TemporaryFile::create(file("f")).value();
  touch("f.1-2.tmp");  // of a writer that is dead: nobody has it open
  touch("f.tmp");      // of somebody else: no name of ours
  touch("f.x-2.tmp");
  remove_abandoned(folder(), "g.");
  EXPECT_EQ(n_files(), 4);
  remove_abandoned(folder(), "f.");
  EXPECT_EQ(n_files(), 3);
  EXPECT_TRUE(std::filesystem::exists(live.name()));
  ASSERT_TRUE(live.publish());
  EXPECT_TRUE(std::filesystem::exists(file("f")));
}

TEST_F(WrittenFolder, AFolderHasOneWriterUntilItEndsInAnyWay) {
  {
    const auto first = FolderLock::take(folder());
    ASSERT_TRUE(first);
    const auto second = FolderLock::take(folder());
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, ErrorCode::kExhausted);
    EXPECT_EQ(second.error().message,
              folder() + ": wanted to write there alone, found another process writing");
  }
  EXPECT_EQ(n_files(), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = FolderLock::take(folder());
    const auto temporary = TemporaryFile::create(file("f"));
    ::raise(SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(n_files(), 2);
  EXPECT_TRUE(FolderLock::take(folder()));
  remove_abandoned(folder());
  EXPECT_EQ(n_files(), 0);
}

TEST(ThreadPool, WantOfMemoryInAnyThreadComesBackToTheCaller) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    bool raised = false;
    try {
      pool.parallel_for(64, 1, [&](int64_t begin, int64_t) {
        if (begin > 0) std::rethrow_exception(std::make_exception_ptr(std::bad_alloc()));
      });
    } catch (const std::bad_alloc&) {
      raised = true;
    }
    EXPECT_TRUE(raised);
    std::atomic<int64_t> sum = 0;
    pool.parallel_for(100, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
    EXPECT_EQ(sum.load(), 100);
  }
}

// Under a limit of the address space, which sanitizers cannot live with.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(ThreadPool, MoreThreadsThanTheSystemGivesAreRefused) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto make_many = [] {
    const struct rlimit limit = {.rlim_cur = uint64_t{2} << 30, .rlim_max = uint64_t{2} << 30};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(2);
    const auto pool = ThreadPool::make(4096);
    if (pool || pool.error().code != ErrorCode::kExhausted) std::_Exit(3);
    std::fprintf(stderr, "%s\n", pool.error().message.c_str());
    std::_Exit(0);
  };
  EXPECT_EXIT(make_many(), testing::ExitedWithCode(0),
              "^threads: wanted 4096, found room for [0-9]+\n$");
}

TEST(ThreadPool, WithoutANumberItTakesWhatThereIs) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto make = [] {
    const struct rlimit nothing = {.rlim_cur = uint64_t{1} << 20, .rlim_max = uint64_t{1} << 20};
    if (::setrlimit(RLIMIT_AS, &nothing) != 0) std::_Exit(2);
    std::_Exit(ThreadPool(0).n_threads() == 1 ? 0 : 3);
  };
  EXPECT_EXIT(make(), testing::ExitedWithCode(0), "");
}
#endif

TEST(ThreadPool, WorksAfterAMove) {
  ThreadPool first(3);
  ThreadPool pool = std::move(first);
  std::atomic<int64_t> sum = 0;
  pool.parallel_for(100, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
  EXPECT_EQ(sum.load(), 100);
}

TEST(ThreadPool, CoversEveryIndexOnceForManySizes) {
  ThreadPool pool(3);
  for (const int64_t count : {0, 1, 2, 7, 64, 1001}) {
    std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
    pool.parallel_for(count, 2, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
    });
    for (const auto& hit : hits) EXPECT_EQ(hit.load(), 1);
  }
}

}  // namespace
}  // namespace fathom
