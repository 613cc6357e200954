// Each rule finds its violation in a few lines of text, and leaves the right form alone.

#include "rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <utility>

#include "lexer.h"

namespace fathom::tidy {
namespace {

using ::testing::HasSubstr;

Tree tree_of(std::initializer_list<std::pair<std::string, std::string>> files) {
  Tree tree;
  for (const auto& [path, text] : files) tree.add(path, text);
  return tree;
}

void expect_one(const Complaints& found, const std::string& part) {
  ASSERT_EQ(found.size(), 1U) << (found.empty() ? "" : to_string(found.back()));
  EXPECT_THAT(to_string(found[0]), HasSubstr(part));
}

// What the layer rule says of a file that includes `name`.
Complaints including(const std::string& path, const std::string& name) {
  return check_layers(tree_of({{path, "#include \"" + name + "\"\n"}}));
}

TEST(Layers, RefuseAHigherFloorAndTheSameFloor) {
  expect_one(including("src/base/a.cc", "tensor/tensor.h"), "src/base/a.cc:1: layers: base");
  expect_one(including("src/text/a.cc", "tensor/tensor.h"), "lower floors only");
  expect_one(including("src/cache/a.h", "checkpoint/shard.h"), "lower floors only");
  expect_one(including("src/serve/a.h", "train/loss.h"), "lower floors only");
  expect_one(including("src/engine/a.h", "apps/run.h"), "lower floors only");
  EXPECT_TRUE(including("src/model/a.cc", "ops/ops.h").empty());
  EXPECT_TRUE(including("src/model/a.cc", "model/b.h").empty());
  EXPECT_TRUE(including("src/model/a.cc", "vector").empty());
  EXPECT_TRUE(including("apps/run.cc", "engine/engine.h").empty());
  EXPECT_TRUE(including("tests/golden/a_test.cc", "engine/engine.h").empty());
}

TEST(Layers, LetOnlyTheRegistryKnowBackends) {
  expect_one(including("src/ops/ops.cc", "ops/cpu/cpu_ops.h"), "only ops/backends.cc");
  expect_one(including("src/ops/cuda/a.cc", "ops/cpu/cpu_ops.h"), "only ops/backends.cc");
  expect_one(including("src/model/a.cc", "ops/cpu/cpu_ops.h"), "only ops/backends.cc");
  EXPECT_TRUE(including("src/ops/backends.cc", "ops/cpu/cpu_ops.h").empty());
  EXPECT_TRUE(including("src/ops/cpu/a.cc", "ops/cpu/cpu_ops.h").empty());
  EXPECT_TRUE(including("src/ops/ops_test.cc", "ops/cpu/cpu_ops.h").empty());
}

TEST(Layers, RefuseAFolderThatIsNoRoom) {
  expect_one(check_layers(tree_of({{"src/misc/a.cc", ""}})), "no room");
}

TEST(ThirdParty, StaysInItsRoom) {
  const auto including = [](const std::string& path, const std::string& name) {
    return check_third_party(tree_of({{path, "#include <" + name + ">\n"}}));
  };
  expect_one(including("src/ops/cpu/a.cc", "cuda_runtime.h"), "CUDA belongs to src/ops/cuda");
  expect_one(including("src/engine/a.cc", "torch/torch.h"), "libtorch belongs to");
  const std::string foreign = "#include <unicode/uchar.h>\n";
  expect_one(check_third_party(
                 tree_of({{"src/text/a.h", foreign}, {"src/text/b.h", "#include \"text/a.h\"\n"}})),
             "standard library only");
  EXPECT_TRUE(check_third_party(tree_of({{"src/text/a.h", foreign},
                                         {"src/text/b.cc", "#include \"text/a.h\"\n"}}))
                  .empty());
  expect_one(check_third_party(tree_of({{"src/engine/a.cu", ""}})), ".cu file belongs");
  EXPECT_TRUE(including("src/ops/cuda/a.cc", "cuda_runtime.h").empty());
  EXPECT_TRUE(including("src/train/a.cc", "torch/torch.h").empty());
  EXPECT_TRUE(including("apps/train_main.cc", "torch/torch.h").empty());
  EXPECT_TRUE(including("src/text/a.cc", "unicode/uchar.h").empty());
  EXPECT_TRUE(including("src/base/a.h", "sys/types.h").empty());
}

TEST(LinkGraph, FollowsTheFloors) {
  const auto linking = [](const std::string& room, const std::string& dependency) {
    return check_link_graph(tree_of({{"src/" + room + "/CMakeLists.txt",
                                      "fathom_room(" + room + " DEPS " + dependency + ")\n"}}));
  };
  expect_one(linking("text", "fathom_tensor"), "text links fathom_tensor");
  expect_one(linking("base", "fathom_engine"), "base links fathom_engine");
  expect_one(linking("engine", "fathom_train_data"), "engine links fathom_train_data");
  EXPECT_TRUE(linking("train", "fathom_train_data").empty());
  EXPECT_TRUE(linking("base", "fathom_tests fathom_test").empty());
  EXPECT_TRUE(linking("model", "fathom_ops fathom_checkpoint").empty());
}

TEST(CmakeRooms, MissNoFile) {
  expect_one(check_cmake_rooms(tree_of({{"src/base/a.cc", ""}})), "src/base/a.cc:0: cmake");
  expect_one(check_cmake_rooms(tree_of(
                 {{"src/ops/cpu/a.cc", ""}, {"src/ops/CMakeLists.txt", "fathom_room(ops)\n"}})),
             "src/ops/cpu/a.cc");
  expect_one(check_cmake_rooms(tree_of({{"tests/e2e/a_test.cc", ""},
                                        {"tests/e2e/CMakeLists.txt", "SOURCES b_test.cc\n"}})),
             "tests/e2e/a_test.cc");
  EXPECT_TRUE(check_cmake_rooms(tree_of({{"src/base/a.cc", ""},
                                         {"src/base/CMakeLists.txt", "fathom_room(base)\n"}}))
                  .empty());
  EXPECT_TRUE(
      check_cmake_rooms(tree_of({{"src/ops/cpu/a.cc", ""},
                                 {"src/ops/CMakeLists.txt", "fathom_room(ops SUBFOLDERS cpu)\n"}}))
          .empty());
}

TEST(OwnHeader, ComesFirstAndIsGuarded) {
  expect_one(check_own_header(tree_of({{"src/base/a.h", "int f();\n"}})), "no #pragma once");
  expect_one(check_own_header(tree_of(
                 {{"src/base/a.h", "#pragma once\n"}, {"src/base/a.cc", "#include <vector>\n"}})),
             "first include is not a.h");
  EXPECT_TRUE(check_own_header(tree_of({{"src/base/a.h", "#pragma once\n"},
                                        {"src/base/a.cc", "// Why.\n#include \"base/a.h\"\n"}}))
                  .empty());
}

TEST(Lines, HaveAHundredColumnsAndFilesSixHundredLines) {
  const std::string wide(101, 'x');
  expect_one(check_lines(tree_of({{"src/base/a.cc", "\n" + wide + "\n"}})), "a.cc:2: lines: 101");
  expect_one(check_lines(tree_of({{"src/base/a.cc", std::string(601, '\n')}})), "601 lines");
  expect_one(check_lines(tree_of({{"src/ops/cuda/a.cu", std::string(901, '\n')}})), "901 lines");
  std::string accents;
  for (int i = 0; i < 100; ++i) accents += "\xC3\xA9";
  EXPECT_TRUE(check_lines(tree_of({{"src/base/a.cc", accents + "\n"}})).empty());
  EXPECT_TRUE(check_lines(tree_of({{"src/ops/cuda/a.cu", std::string(900, '\n')}})).empty());
  EXPECT_TRUE(check_lines(tree_of({{"docs/a.md", wide + "\n"}})).empty());
  expect_one(check_lines(tree_of({{"src/serve/a.js", wide + "\n"}})), "a.js:1: lines: 101");
  expect_one(check_lines(tree_of({{"src/serve/a.css", std::string(601, '\n')}})), "601 lines");
}

TEST(Functions, AreShort) {
  const std::string body(68, '\n');
  const auto check = [](const std::string& text) {
    return check_functions(tree_of({{"src/base/a.cc", text}}));
  };
  EXPECT_TRUE(check("int f() {\n" + body + "}\n").empty());
  expect_one(check("int f() {\n\n" + body + "}\n"), "f has 71 lines");
  expect_one(check("struct A {\n  int f() {\n\n" + body + "}\n};\n"), "a.cc:2: function: f has 71");
  expect_one(check("A::A(int a)\n    : a_(a), b_{a} {\n" + body + "}\n"), "A has 71 lines");
  EXPECT_TRUE(check("__global__ void f() {\n\n" + body + "}\n").empty());
}

TEST(Functions, HaveFiveParameters) {
  const auto check = [](const std::string& text) {
    return check_functions(tree_of({{"src/base/a.h", text}}));
  };
  expect_one(check("void f(int a, int b, int c, int d, int e, int g);\n"), "f has 6 parameters");
  expect_one(check("struct S {\n  virtual void f(int, int, int, int, int, int) = 0;\n};\n"),
             "a.h:2: function: f has 6 parameters");
  EXPECT_TRUE(
      check("void f(std::map<int, int> a, int b = g(1, 2, 3, 4), int c = 0, int d);\n").empty());
  EXPECT_TRUE(check("std::function<void(int, int, int, int, int, int)> f;\n").empty());
}

TEST(Functions, OfAutogradTakeOneParameterAnInput) {
  const auto check = [](const std::string& path, const std::string& rest) {
    return check_functions(tree_of({{path, "void forward(int a, int b, int c, int d" + rest}}));
  };
  EXPECT_TRUE(check("src/train/fused.cc", ", int e, int f, int g, int h);\n").empty());
  expect_one(check("src/train/fused.cc", ", int e, int f, int g, int h, int i);\n"),
             "forward has 9 parameters");
  expect_one(check("src/train/corpus/a.cc", ", int e, int f);\n"), "forward has 6 parameters");
  expect_one(check("src/model/a.cc", ", int e, int f);\n"), "forward has 6 parameters");
}

TEST(Functions, NestThreeLevels) {
  const auto check = [](const std::string& body) {
    return check_functions(tree_of({{"src/base/a.cc", "void f() {\n" + body + "\n}\n"}}));
  };
  expect_one(check("for (;;) { while (a) { if (b) { do { c(); } while (d); } } }"), "4 levels");
  expect_one(check("for (;;) for (;;) for (;;) for (;;) { c(); }"), "4 levels");
  EXPECT_TRUE(check("for (;;) { while (a) { if (b) { c({1}); } } }").empty());
  EXPECT_TRUE(check("for (;;) { while (a) { if (b) { if (c) return E{1}; } } }").empty());
  EXPECT_TRUE(check("if (a) { } else if (b) { } else if (c) { } else if (d) { } else { }").empty());
  EXPECT_TRUE(check("const char* s = \"{{{{\"; // if (a) { if (b) {").empty());
}

TEST(BannedWords, KeepMarkupAndOtherHostsOutOfTheConsole) {
  const auto check = [](const std::string& path, const std::string& text) {
    return check_banned_words(tree_of({{path, text}}));
  };
  expect_one(check("src/a.js", "node.innerHTML = answer;\n"), "never read as markup");
  expect_one(check("src/a.js", "eval(answer);\n"), "no code from text");
  expect_one(check("src/a.html", "<p onclick=\"go()\">\n"), "in files alone");
  expect_one(check("src/a.html", "<script src=\"//cdn.example/a.js\">\n"), "another host");
  expect_one(check("src/a.css", "p { background: url(a.png); }\n"), "another host");
  EXPECT_TRUE(check("src/a.js", "make(\"http://www.w3.org/2000/svg\");  // A note.\n").empty());
}

TEST(BannedWords, AreFoundInCodeAndOnlyThere) {
  const auto check = [](const std::string& path, const std::string& text) {
    return check_banned_words(tree_of({{path, text}}));
  };
  expect_one(check("src/base/a.cc", "void f() { throw 1; }\n"), "no throw");
  expect_one(check("src/base/a.cc", "const char* h = std::getenv(name);\n"), "getenv");
  expect_one(check("src/base/a.h", "std::shared_ptr<int> p;\n"), "shared ownership");
  expect_one(check("src/base/a.cc", "int a = std::rand();\n"), "no rand");
  expect_one(check("src/base/a.cc", "// TODO: more\n"), "left open");
  expect_one(check("docs/a.md", "See /home/someone/x.\n"), "path of one machine");
  expect_one(check("tools/a.sh", "curl https://pypi.org/simple\n"), "registry");
  EXPECT_TRUE(check("src/base/flags.cc", "const char* h = std::getenv(name);\n").empty());
  EXPECT_TRUE(check("src/base/a.cc", "// We never throw.\nconst char* s = \"throw\";\n").empty());
  EXPECT_TRUE(check("src/base/a.cc", "int operand = grand(1);\n").empty());
  expect_one(check("src/base/a.cc", "int a = std::stoi(text);\n"), "numbers are read");
  expect_one(check("apps/a.cc", "double a = std::stod(text);\n"), "numbers are read");
  EXPECT_TRUE(check("src/base/a_test.cc", "int a = std::stoi(text);\n").empty());
  EXPECT_TRUE(check("src/base/a.cc", "restore(a); history(b);\n").empty());
  expect_one(check("src/engine/a.cc", "worker.detach();\n"), "no detached thread");
  expect_one(check("src/train/corpus/a.cc", "worker.detach();\n"), "no detached thread");
  EXPECT_TRUE(check("src/train/a.cc", "const Tensor y = x.detach();\n").empty());
}

TEST(Names, FollowTheStyle) {
  const auto check = [](const std::string& path, const std::string& text) {
    return check_names(tree_of({{path, text}}));
  };
  expect_one(check("src/base/BadName.cc", ""), "file is not snake_case");
  expect_one(check("src/base/a.h", "struct bad_type { int a; };\n"), "not PascalCase: bad_type");
  EXPECT_TRUE(check("src/base/a.h", "namespace library {\nclass value;\n}\n").empty());
  expect_one(check("src/base/a.h", "class CacheManager {};\n"), "says nothing: CacheManager");
  expect_one(check("src/base/a.cc", "int BadFunction(int a) { return a; }\n"), "BadFunction");
  expect_one(check("src/base/a.h", "#define BAD_MACRO 1\n"), "macro without FATHOM_");
  expect_one(check("src/base/a.h", "constexpr int max_bytes = 3;\n"), "constant without k");
  EXPECT_TRUE(check("src/base/a.h",
                    "#define FATHOM_X 1\nconstexpr int64_t kMax = 3;\n"
                    "class Good {\n public:\n  Good(int a) : a_(a) {}\n  int size() const;\n};\n"
                    "TEST(Name, IsASentence) {}\n")
                  .empty());
}

TEST(Tests, AreNotSwitchedOff) {
  const auto check = [](const std::string& text) {
    return check_tests(tree_of({{"src/base/a_test.cc", text}}));
  };
  expect_one(check("// TEST(A, B) {}\n"), "commented-out test");
  expect_one(check("TEST(A, DISABLED_B) {}\n"), "switched off");
  expect_one(check("#if 0\n#endif\n"), "switched off");
  EXPECT_TRUE(check("TEST(A, B) {}  // A test of B.\n").empty());
}

TEST(Citations, NameWhatIsThere) {
  const auto check = [](const std::string& text) {
    return check_citations(tree_of({{"docs/spec/engram.md", "# E\n"},
                                    {"tests/golden/ops/rope.safetensors", ""},
                                    {"src/base/a.h", text}}));
  };
  expect_one(check("// Source: spec/engrams.md 3.\n"), "there is no docs/spec/engrams.md");
  expect_one(check("// As tests/golden/ops/ropes.json.\n"), "no tests/golden/ops/ropes.json");
  expect_one(check("root + \"/tests/golden/op/\" + name\n"), "no tests/golden/op/");
  EXPECT_TRUE(check("// spec/engram.md 3; (docs/spec/engram.md)\n").empty());
  EXPECT_TRUE(check("// tests/golden/ops/rope.safetensors, tests/golden/ops.\n").empty());
  EXPECT_TRUE(check("// tests/golden, tests/golden/ops/*.safetensors\n").empty());
}

TEST(Documents, HaveOneTitle) {
  const auto check = [](const std::string& text) {
    return check_documents(tree_of({{"docs/a.md", text}}));
  };
  expect_one(check("# A\n\n# B\n"), "found 2");
  expect_one(check("text\n"), "found 0");
  EXPECT_TRUE(check("# A\n\n```sh\n# comment\n```\n\n## B\n").empty());
}

TEST(FileSizes, AreBounded) {
  Tree tree;
  tree.files["docs/a.bin"] = {"", 512 * 1024 + 1};
  expect_one(check_file_sizes(tree), "docs/a.bin");
  Tree data;
  data.files["tests/golden/a.bin"] = {"", 4096 * 1024};
  data.files["models/a/b.safetensors"] = {"", 16 * 1024 * 1024};
  EXPECT_TRUE(check_file_sizes(data).empty());
  for (const char* name : {"models/a/c", "models/a/d", "models/a/e"}) {
    data.files[name] = {"", 16 * 1024 * 1024};
  }
  expect_one(check_file_sizes(data), "all tracked files");
}

TEST(Lexer, BlanksLiteralsAndKeepsLines) {
  EXPECT_EQ(blank_literals("a = \"x{\\\"\"; // b\nc", false), "a = \"    \";     \nc");
  EXPECT_EQ(blank_literals("n = 1'000; c = '{';", false), "n = 1'000; c = ' ';");
  const std::string raw = blank_literals("s = R\"x({\")\n)x\"; y", false);
  EXPECT_EQ(raw.find('{'), std::string::npos);
  EXPECT_THAT(raw, HasSubstr("; y"));
}

TEST(Lexer, FindsFunctionsWhereTheyStand) {
  const std::vector<Function> found = find_functions(
      "namespace a {\ntemplate <class T>\nclass B : public C<T> {\n public:\n  explicit B(int x);\n"
      "  bool operator==(const B& other) const { return true; }\n  int size() const { return 1; }\n"
      " private:\n  std::vector<int> v_{1, 2};\n};\n}  // namespace a\n"
      "auto a::free_one(int x, std::pair<int, int> y) -> int {\n  return x;\n}\n");
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0].name, "B");
  EXPECT_EQ(found[1].name, "operator");
  EXPECT_EQ(found[2].name, "size");
  EXPECT_EQ(found[2].line, 7);
  EXPECT_EQ(found[3].name, "free_one");
  EXPECT_EQ(found[3].parameters, 2);
  EXPECT_EQ(found[3].lines, 3);
}

}  // namespace
}  // namespace fathom::tidy
