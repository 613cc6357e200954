// The tree as it stands keeps every rule. A failure lists path, line, rule and what was found.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "rules.h"

namespace fathom::tidy {
namespace {

const Tree& tree() {
  static const Tree kTree = read_tree(FATHOM_SOURCE_DIR);
  return kTree;
}

void expect_none(const Complaints& found) {
  std::string all;
  for (const Complaint& complaint : found) all += "\n  " + to_string(complaint);
  EXPECT_TRUE(found.empty()) << found.size() << " complaints" << all;
}

TEST(Tree, IsTheRepository) {
  EXPECT_TRUE(tree().has("CMakeLists.txt"));
  EXPECT_TRUE(tree().has("src/base/result.h"));
}

TEST(Tree, KeepsTheLayerLaw) { expect_none(check_layers(tree())); }
TEST(Tree, KeepsLibrariesInTheirRooms) { expect_none(check_third_party(tree())); }
TEST(Tree, LinksAlongTheLayerLaw) { expect_none(check_link_graph(tree())); }
TEST(Tree, CompilesEveryFile) { expect_none(check_cmake_rooms(tree())); }
TEST(Tree, IncludesTheOwnHeaderFirst) { expect_none(check_own_header(tree())); }
TEST(Tree, KeepsLinesAndFilesShort) { expect_none(check_lines(tree())); }
TEST(Tree, KeepsFunctionsShort) { expect_none(check_functions(tree())); }
TEST(Tree, UsesNoBannedWord) { expect_none(check_banned_words(tree())); }
TEST(Tree, NamesThingsAlike) { expect_none(check_names(tree())); }
TEST(Tree, SwitchesNoTestOff) { expect_none(check_tests(tree())); }
TEST(Tree, NamesOnlyPagesThatExist) { expect_none(check_citations(tree())); }
TEST(Tree, GivesEachDocumentOneTitle) { expect_none(check_documents(tree())); }
TEST(Tree, KeepsFilesSmall) { expect_none(check_file_sizes(tree())); }

// Runs a command and returns what it printed.
std::string output_of(const std::string& command, int& status) {
  std::string text;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  char buffer[4096];
  for (size_t n = 0; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) text.append(buffer, n);
  status = pclose(pipe);
  return text;
}

TEST(Tree, IsFormatted) {
  int status = 0;
  if (output_of("command -v clang-format-14 2>/dev/null", status).empty()) {
    GTEST_SKIP() << "clang-format-14 is not installed";
  }
  std::string command = "cd '" FATHOM_SOURCE_DIR "' && clang-format-14 --dry-run -Werror";
  int n_files = 0;
  for (const auto& [path, file] : tree().files) {
    if (!is_source(path) || is_data(path)) continue;
    command += " '" + path + "'";
    ++n_files;
  }
  ASSERT_GT(n_files, 0);
  const std::string complaints = output_of(command + " 2>&1", status);
  EXPECT_EQ(status, 0) << complaints.substr(0, 8000);
}

}  // namespace
}  // namespace fathom::tidy
