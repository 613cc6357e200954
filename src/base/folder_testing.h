#pragma once

// A test with a folder of its own: absent when the test begins, gone when it ends.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>

namespace fathom {

class FolderTest : public testing::Test {
 protected:
  FolderTest() : folder_(std::filesystem::temp_directory_path() / name()) { remove(); }
  ~FolderTest() override { remove(); }

  std::string folder() const { return folder_.string(); }

  const std::filesystem::path folder_;

 private:
  static std::string name() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string("fathom_") + test->test_suite_name() + "_" + test->name() + "_" +
                       std::to_string(::getpid());
    std::replace(name.begin(), name.end(), '/', '_');  // of tests with parameters
    return name;
  }
  void remove() const {
    std::error_code ignored;  // a test may have made it read-only, or made nothing
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(folder_, ignored);
  }
};

}  // namespace fathom
