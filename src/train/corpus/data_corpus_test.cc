#include "train/corpus/data_corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "train/corpus/data_store.h"
#include "train/corpus/synth_text_rng.h"

namespace fathom::train {
namespace {

namespace fs = std::filesystem;

std::string prose(uint64_t seed, int words = 200) {
  SynthRng rng(seed);
  std::string text;
  for (int i = 0; i < words; ++i) {
    for (int64_t j = rng.between(2, 9); j > 0; --j) text += static_cast<char>('a' + rng.below(26));
    text += i % 12 == 11 ? '\n' : ' ';
  }
  return text;
}

class CorpusTest : public testing::Test {
 protected:
  CorpusTest() : root_(fs::temp_directory_path() / ("fathom_corpus_" + std::to_string(getpid()))) {
    fs::remove_all(root_);
  }
  ~CorpusTest() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path, std::ios::binary) << text;
  }

  void copyright(const std::string& package, const std::string& licence,
                 const std::string& more = "") const {
    write(package + "/usr/share/doc/" + package + "/copyright",
          "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n"
          "Files: *\nLicense: " +
              licence + "\n\n" + more);
  }

  Result<std::vector<SourceText>> build(const std::string& recipe) const {
    FATHOM_ASSIGN_OR_RETURN(const std::vector<SourceSpec> specs, parse_recipe(recipe));
    return build_corpus(specs, root_.string());
  }

  fs::path root_;
};

TEST_F(CorpusTest, KeepsWhatIsPermissiveReadableAndNew) {
  copyright("code", "Expat", "Files: gpl/*\nLicense: GPL-2+\n");
  write("code/src/a.py", prose(1));
  write("code/src/b.py", prose(1));                                     // exact duplicate
  write("code/src/c.py", "# changed head\n" + prose(1));                // near-duplicate
  write("code/src/d.py", "# GNU General Public License\n" + prose(2));  // by its head
  write("code/src/e.py", "# Code generated. DO NOT EDIT.\n" + prose(3));
  write("code/gpl/f.py", prose(4));                          // by its stanza
  write("code/src/g.txt", prose(5));                         // not asked for
  write("code/src/h.py", prose(6));                          // repeats held-out text
  write("code/src/i.py", std::string(300'000, 'x') + "\n");  // too long
  copyright("docs", "BSD-3-clause");
  write("docs/page.html", "<html><body><pre>" + prose(6) + "</pre></body></html>");
  auto sources = build(
      "code code train auto 0 code *.py\n"
      "docs doc held auto 0 docs *.html  # held out\n");
  ASSERT_TRUE(sources) << sources.error().message;
  ASSERT_EQ(sources->size(), 2u);
  const SourceText& held = (*sources)[0];
  EXPECT_EQ(held.spec.name, "docs");  // held-out sources come first
  ASSERT_EQ(held.documents.size(), 1u);
  const SourceText& code = (*sources)[1];
  ASSERT_EQ(code.documents.size(), 1u);
  EXPECT_EQ(code.documents[0].path, "src/a.py");
  EXPECT_EQ(code.dropped_licence, 2);
  EXPECT_EQ(code.dropped_duplicate, 3);
  EXPECT_EQ(code.files_seen, 8);
}

TEST_F(CorpusTest, IsDeterministicAndCapsByHash) {
  copyright("code", "Expat");
  for (int i = 0; i < 40; ++i) write("code/f" + std::to_string(i) + ".py", prose(100 + i));
  const std::string recipe = "code code train auto 0.01 code *.py\n";
  auto first = build(recipe), second = build(recipe);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(manifest_json(*first, {}), manifest_json(*second, {}));
  const SourceText& source = (*first)[0];
  EXPECT_GE(source.bytes, 10'000);
  EXPECT_LT(source.bytes, 12'000);
  EXPECT_GT(source.dropped_cap, 20);
  ASSERT_EQ(source.documents.size(), (*second)[0].documents.size());
  for (size_t i = 0; i < source.documents.size(); ++i) {
    EXPECT_EQ(source.documents[i].text, (*second)[0].documents[i].text);
  }
}

TEST_F(CorpusTest, RefusesPackagesThatAreNotPermissive) {
  copyright("code", "GPL-2+");
  write("code/a.py", prose(1));
  EXPECT_THAT(build("code code train auto 0 code *.py\n").error().message,
              testing::HasSubstr("licence: wanted a permissive one, found \"GPL-2+\""));
  EXPECT_THAT(build("code code train auto 0 none *.py\n").error().message,
              testing::HasSubstr("package none"));
}

TEST(Recipe, NamesTheLineOfAMistake) {
  EXPECT_THAT(parse_recipe("\n# x\na doc train auto 0 p\n").error().message,
              testing::HasSubstr("line 3: wanted 7 fields, found 6"));
  EXPECT_THAT(parse_recipe("a prose train auto 0 p *\n").error().message,
              testing::HasSubstr("kind: wanted doc or code, found prose"));
  EXPECT_THAT(parse_recipe("a doc train auto 0 p *\na doc train auto 0 q *\n").error().message,
              testing::HasSubstr("found a again"));
  EXPECT_THAT(parse_recipe("a doc train auto x p *\n").error().message, testing::HasSubstr("cap"));
}

TEST(Readable, KeepsTextAndDropsTables) {
  EXPECT_EQ(readable_text("a.py", prose(1)), prose(1).substr(0, prose(1).size() - 1) + "\n");
  std::string digits;
  for (int i = 0; i < 2000; ++i) digits += std::to_string(i) + ", ";
  EXPECT_EQ(readable_text("a.py", digits), "");
  EXPECT_EQ(readable_text("a.py", prose(1) + std::string(1, '\0')), "");
  EXPECT_EQ(readable_text("a.py", prose(1) + "\xFF"), "");
  EXPECT_EQ(readable_text("a.py", "short\n"), "");
  EXPECT_EQ(readable_text("a.py", std::string(3000, 'a') + "\n"), "");
  // Old pages are Latin-1.
  EXPECT_THAT(readable_text("a.html", "<p>" + prose(2) + " caf\xE9</p>"),
              testing::HasSubstr("caf\xC3\xA9"));
}

TEST(Store, JoinsAndSplitsDocuments) {
  const std::vector<std::string> texts{"one\n", "", "three\n"};
  EXPECT_EQ(split_documents(join_documents(texts)), texts);
  EXPECT_TRUE(split_documents("").empty());
}

TEST(Store, ReadsThePackageTable) {
  const std::string sum(64, 'a');
  auto table = parse_package_table("tool\t1.2-3\t" + sum + "\t99\n");
  ASSERT_TRUE(table);
  EXPECT_EQ(table->at("tool").version, "1.2-3");
  EXPECT_FALSE(parse_package_table("tool 1.2\n"));
}

}  // namespace
}  // namespace fathom::train
