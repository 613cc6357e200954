// Goal: the small values every floor stands on. Method: each against its definition.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/result.h"
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
