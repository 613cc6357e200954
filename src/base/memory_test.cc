// Goal: memory limits of control groups bound what is available. Method: trees of files as versions
// 2 and 1 of the kernel's interface show them.
#include "base/memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>

namespace fathom {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

class CgroupTest : public testing::Test {
 protected:
  void SetUp() override {
    mount_ = testing::TempDir() + "/fathom_cgroup_" + std::to_string(::getpid());
    std::filesystem::remove_all(mount_);
  }
  void TearDown() override { std::filesystem::remove_all(mount_); }

  void put(const std::string& name, const std::string& text) {
    const std::filesystem::path path = mount_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  std::string mount_;
};

TEST_F(CgroupTest, Version2TakesTheTightestGroupOnTheWayUp) {
  put("memory.stat", "anon 5\n");  // the root has no limit files
  put("a/memory.max", "1000\n");
  put("a/memory.current", "900\n");
  put("a/memory.stat", "anon 300\ninactive_file 250\nactive_file 50\nfile 400\n");
  put("a/b/memory.max", "max\n");
  put("a/b/memory.current", "900\n");
  EXPECT_EQ(cgroup_memory_bytes("0::/a/b\n", mount_), 400u);
  put("a/b/memory.max", "910\n");
  EXPECT_EQ(cgroup_memory_bytes("0::/a/b\n", mount_), 10u);
  put("a/b/memory.max", "800\n");
  EXPECT_EQ(cgroup_memory_bytes("0::/a/b\n", mount_), 0u);
}

TEST_F(CgroupTest, AContainerSeesItsGroupAtTheMount) {
  put("memory.max", "5000");
  put("memory.current", "2000");
  EXPECT_EQ(cgroup_memory_bytes("0::/\n", mount_), 3000u);
  EXPECT_EQ(cgroup_memory_bytes("0::/of/the/host\n", mount_), 3000u);
}

TEST_F(CgroupTest, Version1IsReadFromItsOwnController) {
  put("memory/x/memory.limit_in_bytes", "700\n");
  put("memory/x/memory.usage_in_bytes", "600\n");
  put("memory/x/memory.stat", "inactive_file 1\ntotal_inactive_file 40\ntotal_active_file 2\n");
  const std::string membership = "12:cpuset:/y\n4:cpu,memory:/x\n0::/\n";
  EXPECT_EQ(cgroup_memory_bytes(membership, mount_), 142u);
  put("memory/x/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_GT(cgroup_memory_bytes(membership, mount_), uint64_t{1} << 60);
}

TEST_F(CgroupTest, WithoutGroupsThereIsNoLimit) {
  for (const char* membership : {"", "\n", "0::", "::\n", "nonsense", "0:", "3:memory:relative\n",
                                 "0::/a/b\n4:memory:/x\n"}) {
    EXPECT_EQ(cgroup_memory_bytes(membership, mount_), kUnlimited) << membership;
  }
}

TEST(Memory, SomethingIsAvailableHere) {
  EXPECT_GT(available_memory_bytes(), 0u);
  EXPECT_LT(available_memory_bytes(), kUnlimited);
}

}  // namespace
}  // namespace fathom
