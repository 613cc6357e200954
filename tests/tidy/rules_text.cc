#include <regex>
#include <set>

#include "lexer.h"
#include "rules.h"

namespace fathom::tidy {
namespace {

constexpr int kMaxColumns = 100;
constexpr int kMaxFileLines = 600;
constexpr int kMaxTableLines = 900;  // tables and kernels
constexpr int kMaxFunctionLines = 70;
constexpr int kMaxKernelLines = 150;
constexpr int kMaxParameters = 5;
constexpr int kMaxNesting = 3;
// Blocked loops of a kernel: blocks, panels, rows, lanes, tail.
constexpr int kMaxKernelParameters = 8;
constexpr int kMaxKernelNesting = 5;

// The rules themselves and their tests name what they forbid.
bool is_own(const std::string& path) { return starts_with(path, "tests/tidy/"); }

// Columns, not bytes: continuation bytes of UTF-8 do not count.
int columns_of(const std::string& line) {
  int columns = 0;
  for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
  return columns;
}

bool is_script(const std::string& path) {
  return ends_with(path, ".sh") || ends_with(path, ".cmake") || ends_with(path, "CMakeLists.txt") ||
         ends_with(path, ".py") || path == "fathom" || path == ".ci/run";
}

// A file of the console.
bool is_web(const std::string& path) {
  return ends_with(path, ".js") || ends_with(path, ".css") || ends_with(path, ".html");
}

bool is_kernel_file(const std::string& path) {
  static const std::regex kKernel(R"(_(simd|kernel)\.(cc|h)$)");
  return std::regex_search(path, kKernel);
}

bool is_table_or_kernel(const std::string& path) {
  static const std::regex kTable(R"(_(table|tables|data)\.(cc|h)$)");
  return ends_with(path, ".cu") || ends_with(path, ".cuh") || is_kernel_file(path) ||
         std::regex_search(path, kTable);
}

struct Ban {
  std::regex pattern;
  std::string message;
  bool (*exempt)(const std::string& path);
};

bool nowhere(const std::string&) { return false; }
bool in_flags(const std::string& path) { return starts_with(path, "src/base/flags"); }

// Where libtorch is spoken: a tensor's detach() takes it out of the graph of gradients.
bool in_trainer(const std::string& path) {
  return starts_with(path, "src/train/") && !starts_with(path, "src/train/corpus/");
}

// A test may end at a bad number. The rest: readers that are yet to be mended.
bool in_test(const std::string& path) {
  return ends_with(path, "_test.cc") || starts_with(path, "tests/") || in_trainer(path) ||
         path == "src/eval/case_check.cc";
}

// Looked for in code without comments and literals.
const std::vector<Ban>& banned_code() {
  static const std::vector<Ban> kBans = {
      {std::regex(R"(\bthrow\b)"), "no throw: an expected failure is a Result", nowhere},
      {std::regex(R"(\b(secure_)?getenv\b)"), "getenv outside base/flags", in_flags},
      {std::regex(R"(\b(shared_ptr|make_shared|weak_ptr)\b)"), "no shared ownership", nowhere},
      {std::regex(R"(\b(std::rand|srand|rand)\s*\()"), "no rand: numbers come from a seed",
       nowhere},
      {std::regex(R"(\busing namespace std\b)"), "no using namespace std", nowhere},
      {std::regex(R"(\bsto(i|l|ll|ul|ull|f|d|ld)\s*\()"),
       "numbers are read with from_chars: sto* throws", in_test},
      {std::regex(R"(\.detach\(\))"), "no detached thread", in_trainer},
  };
  return kBans;
}

// Looked for in files of the console: text of a model never becomes markup or code, style and
// scripts stand in files of their own, and nothing comes from another host.
const std::vector<Ban>& banned_web() {
  static const std::vector<Ban> kBans = {
      {std::regex(R"(\b(innerHTML|outerHTML|insertAdjacentHTML|srcdoc|DOMParser)\b)"),
       "text is never read as markup", nowhere},
      {std::regex(R"(\bdocument\.write|\beval\(|\bnew Function\b)"), "no code from text", nowhere},
      {std::regex(R"(<(script|style)>|\s(style|on[a-z]+)=")"), "style and scripts in files alone",
       nowhere},
      {std::regex(R"(//(?!www\.w3\.org/2000/svg")[\w-]+\.|@import|\burl\()"),
       "nothing from another host", nowhere},
  };
  return kBans;
}

// Looked for in every text file, comments and documents included.
const std::vector<Ban>& banned_text() {
  static const std::vector<Ban> kBans = {
      {std::regex(R"(\b(TODO|FIXME|XXX|HACK)\b)"), "work left open", nowhere},
      {std::regex(R"((^|[\s"'`(=:])/(work|home|root|Users|mnt)/)"), "path of one machine", nowhere},
      {std::regex(R"((pypi\.org|pythonhosted\.org|npmjs\.(org|com)|deb\.debian\.org|crates\.io)"
                  R"(|docker\.io|ghcr\.io|proxy\.golang\.org|download\.pytorch\.org))"),
       "host name of a package registry", nowhere},
      {std::regex("^(<<<<<<<|>>>>>>>) "), "merge conflict", nowhere},
  };
  return kBans;
}

void apply(const std::vector<Ban>& bans, const std::string& path, const std::string& text,
           Complaints& found) {
  int number = 0;
  for (const std::string& line : lines_of(text)) {
    ++number;
    for (const Ban& ban : bans) {
      if (ban.exempt(path) || !std::regex_search(line, ban.pattern)) continue;
      found.push_back({path, number, "words", ban.message});
    }
  }
}

void check_function(const std::string& path, const Function& f, Complaints& found) {
  if (f.name == "volatile") return;  // an asm statement and its operands
  const auto complain = [&](const std::string& what, int value, int limit) {
    if (value <= limit) return;
    found.push_back({path, f.line, "function",
                     f.name + " has " + std::to_string(value) + " " + what + ", wanted at most " +
                         std::to_string(limit)});
  };
  const bool kernel = f.kernel || is_kernel_file(path);
  // libtorch hands Function::forward its context and each input with a gradient as one parameter.
  const bool autograd = in_trainer(path) && f.name == "forward";
  complain("lines", f.lines, kernel ? kMaxKernelLines : kMaxFunctionLines);
  complain("parameters", f.parameters, kernel || autograd ? kMaxKernelParameters : kMaxParameters);
  complain("levels of control flow", f.nesting, kernel ? kMaxKernelNesting : kMaxNesting);
}

// Names of classes, structs, enums and aliases that text declares, or those alone that it defines.
std::set<std::string> type_names(const std::string& blanked, bool defined) {
  static const std::regex kType(
      R"(\b(?:class|struct|union|enum class|enum|using)\s+(?:\[\[\w+\]\]\s*)?)"
      R"((?:FATHOM_\w+(?:\([^)]*\))?\s+)?)"
      R"((?:alignas\([^)]*\)\s+)?(\w+)\s*(?:final\s*)?((?::(?!:)|[{;=])))");
  std::set<std::string> names;
  const auto end = std::sregex_iterator();
  for (auto it = std::sregex_iterator(blanked.begin(), blanked.end(), kType); it != end; ++it) {
    const bool declares = (*it)[2] == ";";
    if (!defined || !declares) names.insert((*it)[1]);
  }
  return names;
}

void check_type_names(const std::string& path, const std::set<std::string>& names,
                      Complaints& found) {
  static const std::regex kPascal("[A-Z][A-Za-z0-9]*");
  static const std::regex kVague("(Manager|Helper|Helpers|Util|Utils|Impl|Base)$");
  // What the standard library asks for by name.
  static const std::set<std::string> kGiven = {
      "value_type", "iterator_category", "difference_type", "pointer",
      "reference",  "is_transparent",    "promise_type"};
  for (const std::string& name : names) {
    if (kGiven.count(name) == 0 && !std::regex_match(name, kPascal)) {
      found.push_back({path, 0, "names", "type is not PascalCase: " + name});
    }
    if (std::regex_search(name, kVague)) {
      found.push_back({path, 0, "names", "type name says nothing: " + name});
    }
  }
}

void check_function_names(const std::string& path, const std::vector<Function>& functions,
                          const std::set<std::string>& types, Complaints& found) {
  static const std::regex kSnake("[a-z_][a-z0-9_]*");
  static const std::regex kMacro("[A-Z][A-Z0-9_]*");
  for (const Function& f : functions) {
    if (std::regex_match(f.name, kSnake) || std::regex_match(f.name, kMacro)) continue;
    // Overrides of GoogleTest and of libFuzzer keep the names they are called by.
    static const std::set<std::string> kGiven = {
        "SetUp",  "TearDown", "SetUpTestSuite", "TearDownTestSuite", "LLVMFuzzerTestOneInput",
        "PrintTo"};
    if (types.count(f.name) != 0 || kGiven.count(f.name) != 0) continue;
    found.push_back({path, f.line, "names", "function is not snake_case: " + f.name});
  }
}

void check_macros_and_constants(const std::string& path, const std::string& blanked,
                                Complaints& found) {
  // The other prefixes are switches that a library reads.
  static const std::regex kDefine(
      R"(^\s*#\s*define\s+(?!FATHOM_|HWY_|PCRE2_|BOOST_|_GNU_SOURCE)(\w+))");
  static const std::regex kConstant(
      R"(^(?:inline |static )*constexpr (?!auto operator)[\w:<>, ]+?[ >](\w+))"
      R"((?:\[[^\]]*\])*\s*(?:=|\{))");
  int number = 0;
  for (const std::string& line : lines_of(blanked)) {
    ++number;
    std::smatch match;
    if (std::regex_search(line, match, kDefine)) {
      found.push_back({path, number, "names", "macro without FATHOM_: " + match.str(1)});
    }
    if (std::regex_search(line, match, kConstant) && match.str(1)[0] != 'k') {
      found.push_back({path, number, "names", "constant without k: " + match.str(1)});
    }
  }
}

}  // namespace

Complaints check_lines(const Tree& tree) {
  Complaints found;
  for (const auto& [path, file] : tree.files) {
    if (is_data(path) || !(is_source(path) || is_script(path) || is_web(path))) continue;
    const std::vector<std::string> lines = lines_of(file.text);
    const int limit = is_table_or_kernel(path) ? kMaxTableLines : kMaxFileLines;
    if (static_cast<int>(lines.size()) > limit) {
      found.push_back(
          {path, 0, "lines",
           std::to_string(lines.size()) + " lines, wanted at most " + std::to_string(limit)});
    }
    for (size_t i = 0; i < lines.size(); ++i) {
      if (columns_of(lines[i]) <= kMaxColumns) continue;
      found.push_back({path, static_cast<int>(i) + 1, "lines",
                       std::to_string(columns_of(lines[i])) + " columns, wanted at most " +
                           std::to_string(kMaxColumns)});
    }
  }
  return found;
}

Complaints check_functions(const Tree& tree) {
  Complaints found;
  for (const auto& [path, file] : tree.files) {
    if (!is_source(path)) continue;
    for (const Function& f : find_functions(file.text)) check_function(path, f, found);
  }
  return found;
}

Complaints check_banned_words(const Tree& tree) {
  Complaints found;
  for (const auto& [path, file] : tree.files) {
    if (is_data(path) || is_own(path)) continue;
    apply(banned_text(), path, file.text, found);
    if (is_source(path)) apply(banned_code(), path, blank_literals(file.text, false), found);
    if (is_web(path)) apply(banned_web(), path, file.text, found);
  }
  return found;
}

Complaints check_names(const Tree& tree) {
  static const std::regex kFile("[a-z0-9_]+(-inl)?\\.(h|cc|cu|cuh)");
  std::set<std::string> types;
  for (const auto& [path, file] : tree.files) {
    if (is_source(path)) types.merge(type_names(blank_literals(file.text, false), false));
  }
  Complaints found;
  for (const auto& [path, file] : tree.files) {
    if (!is_source(path)) continue;
    if (!std::regex_match(file_of(path), kFile)) {
      found.push_back({path, 0, "names", "file is not snake_case"});
    }
    const std::string blanked = blank_literals(file.text, false);
    // One that is only declared is looked at where it is defined, or a library's.
    check_type_names(path, type_names(blanked, true), found);
    check_function_names(path, find_functions(file.text), types, found);
    check_macros_and_constants(path, blanked, found);
  }
  return found;
}

Complaints check_tests(const Tree& tree) {
  static const std::regex kCommented(R"(//.*\b(TEST|TEST_F|TEST_P)\s*\()");
  static const std::regex kDisabled(R"(\bDISABLED_|^\s*#\s*if\s+0\b)");
  Complaints found;
  for (const auto& [path, file] : tree.files) {
    if (!is_source(path)) continue;
    int number = 0;
    for (const std::string& line : lines_of(blank_literals(file.text, true))) {
      ++number;
      if (std::regex_search(line, kCommented)) {
        found.push_back({path, number, "tests", "commented-out test"});
      }
      if (std::regex_search(line, kDisabled)) {
        found.push_back({path, number, "tests", "code that is switched off"});
      }
    }
  }
  return found;
}

}  // namespace fathom::tidy
