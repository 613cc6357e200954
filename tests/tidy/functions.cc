// One pass over tokens that finds functions. In a declaration scope (file, namespace, class) the
// tokens since the last `;`, `{` or `}` are the head of what comes; a head with a parameter list
// is a function. Inside a function only braces and control words matter.

#include <algorithm>
#include <array>
#include <optional>

#include "lexer.h"

namespace fathom::tidy {
namespace {

using Tokens = std::vector<Token>;

template <size_t N>
bool is_one_of(std::string_view word, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

constexpr std::array<std::string_view, 5> kControl = {"if", "for", "while", "switch", "do"};
// Words before a parenthesis that is not a parameter list.
constexpr std::array<std::string_view, 9> kNotNames = {
    "alignas",  "decltype",      "noexcept",          "requires", "__attribute__",
    "explicit", "static_assert", "__launch_bounds__", "defined"};
constexpr std::array<std::string_view, 4> kTypes = {"class", "struct", "union", "enum"};

bool is_identifier(std::string_view word) {
  return !word.empty() &&
         (std::isalpha(static_cast<unsigned char>(word[0])) != 0 || word[0] == '_');
}

// A half-open range of tokens.
struct Range {
  size_t begin = 0;
  size_t end = 0;
};

class Finder {
 public:
  explicit Finder(const Tokens& tokens) : tokens_(tokens) {}

  std::vector<Function> run() {
    while (at_ < tokens_.size()) declaration_token();
    return std::move(found_);
  }

 private:
  std::string_view text(size_t index) const {
    return index < tokens_.size() ? tokens_[index].text : std::string_view();
  }

  // One token in a declaration scope.
  void declaration_token() {
    const std::string_view token = text(at_);
    if (token == "(" || token == "[") {
      at_ = after_group(at_);
    } else if (token == ";") {
      function(std::nullopt);
      start_head(at_ + 1);
    } else if (token == "}") {
      start_head(at_ + 1);
    } else if (token == "{") {
      open_brace();
    } else if (token == ":" && is_access_label()) {
      start_head(at_ + 1);
    } else {
      ++at_;
    }
  }

  void start_head(size_t begin) {
    at_ = begin;
    head_ = begin;
  }

  bool is_access_label() const {
    const std::string_view before = text(at_ - 1);
    return at_ == head_ + 1 && (before == "public" || before == "private" || before == "protected");
  }

  // What a brace in a declaration scope opens: a scope to look into, a body, or an initialiser.
  void open_brace() {
    const std::optional<Range> parameters = parameter_list();
    if (head_has("namespace") || head_has("extern") || (!parameters && head_has_type())) {
      if (head_has("enum")) {
        at_ = after_group(at_);
      } else {
        start_head(at_ + 1);
      }
    } else if (parameters && !opens_member_initialiser(*parameters)) {
      const size_t end = after_group(at_);
      function(Range{at_, end});
      start_head(end);
    } else {
      at_ = after_group(at_);
    }
  }

  bool head_has(std::string_view word) const {
    for (size_t i = head_; i < at_; ++i) {
      if (text(i) == word) return true;
    }
    return false;
  }

  // A class head, and not a template parameter `<class T>` in front of something else.
  bool head_has_type() const {
    int angles = 0;
    for (size_t i = head_; i < at_; ++i) {
      angles += text(i) == "<" ? 1 : text(i) == ">" ? -1 : 0;
      if (angles == 0 && is_one_of(text(i), kTypes)) return true;
    }
    return false;
  }

  // `: a_{a}, b_{b} {` after a parameter list: a brace after a name belongs to a member.
  bool opens_member_initialiser(const Range& parameters) const {
    bool in_list = false;
    for (size_t i = parameters.end; i < at_; ++i) in_list = in_list || text(i) == ":";
    return in_list && (is_identifier(text(at_ - 1)) || text(at_ - 1) == ">");
  }

  // The index after the group that opens at `open`.
  size_t after_group(size_t open) const {
    int depth = 0;
    for (size_t i = open; i < tokens_.size(); ++i) {
      const std::string_view token = text(i);
      if (token == "(" || token == "{" || token == "[") ++depth;
      if (token == ")" || token == "}" || token == "]") --depth;
      if (depth == 0) return i + 1;
    }
    return tokens_.size();
  }

  // The parentheses of the head's parameters: the first outside template brackets after a name.
  std::optional<Range> parameter_list() const {
    int angles = 0;
    for (size_t i = head_; i < at_; ++i) {
      const std::string_view token = text(i);
      if (token == "=" && text(i - 1) != "operator") return std::nullopt;
      if (token == "operator") return operator_parameters(i);
      if (token == "<") ++angles;
      if (token == ">" && angles > 0) --angles;
      if (token != "(") continue;
      const bool named = angles == 0 && i > head_ && is_identifier(text(i - 1)) &&
                         !is_one_of(text(i - 1), kNotNames) &&
                         text(i - 1).substr(0, 7) != "FATHOM_";
      const size_t end = after_group(i);
      if (named) return Range{i, end};
      i = end - 1;
    }
    return std::nullopt;
  }

  std::optional<Range> operator_parameters(size_t i) const {
    ++i;
    if (text(i) == "(") i = after_group(i);  // operator()
    while (i < at_ && text(i) != "(") ++i;
    if (i >= at_) return std::nullopt;
    return Range{i, after_group(i)};
  }

  int count_parameters(const Range& list) const {
    if (list.end - list.begin <= 2) return 0;
    if (list.end - list.begin == 3 && text(list.begin + 1) == "void") return 0;
    int commas = 0;
    int angles = 0;
    for (size_t i = list.begin + 1; i + 1 < list.end; ++i) {
      const std::string_view token = text(i);
      if (token == "(" || token == "{" || token == "[") {
        i = after_group(i) - 1;
        continue;
      }
      if (token == "<") ++angles;
      if (token == ">" && angles > 0) --angles;
      if (token == "," && angles == 0) ++commas;
    }
    return commas + 1;
  }

  // Notes the function of the current head, with its body where it has one.
  void function(std::optional<Range> body) {
    const std::optional<Range> parameters = parameter_list();
    if (!parameters || parameters->begin == head_) return;
    Function f;
    f.name = head_has("operator") ? "operator" : std::string(text(parameters->begin - 1));
    f.line = tokens_[head_].line;
    f.parameters = count_parameters(*parameters);
    f.kernel = head_has("__global__");
    if (!body && parameters->begin == head_ + 1) return;  // MACRO(...);
    if (body) {
      f.lines = tokens_[std::min(body->end, tokens_.size()) - 1].line - f.line + 1;
      f.nesting = nesting_of(*body);
    }
    found_.push_back(f);
  }

  // The deepest control block. A statement without braces under a control word counts only where
  // that statement is itself a control block; `else if` is one level.
  int nesting_of(const Range& body) const {
    std::vector<int> blocks;  // levels that each open brace adds
    int level = 0;
    int deepest = 0;
    int pending = 0;        // control headers whose statement has not begun
    size_t header_end = 0;  // the brace of a control block stands right here
    for (size_t i = body.begin; i < body.end; ++i) {
      const std::string_view token = text(i);
      if (is_one_of(token, kControl)) {
        pending += text(i - 1) == "else" && pending > 0 ? 0 : 1;
        header_end = after_control_header(i);
        i = header_end - 1;
        deepest = std::max(deepest, level + pending - 1);
      } else if (token == "else") {
        pending = 1;
        header_end = i + 1;
      } else if (token == "{") {
        const int added = i == header_end ? pending : 0;
        blocks.push_back(added);
        level += added;
        pending -= added;
        deepest = std::max(deepest, level);
      } else if (token == "}") {
        level -= blocks.back();
        blocks.pop_back();
        pending = 0;
      } else if (token == ";") {
        pending = 0;
      }
    }
    return deepest;
  }

  // Past `for (...)`, so that its semicolons end nothing. A lambda inside is not looked into.
  size_t after_control_header(size_t i) const {
    ++i;
    if (text(i) == "constexpr") ++i;
    return text(i) == "(" ? after_group(i) : i;
  }

  const Tokens& tokens_;
  size_t at_ = 0;
  size_t head_ = 0;
  std::vector<Function> found_;
};

}  // namespace

std::vector<Function> find_functions(const std::string& text) {
  const std::string blanked = blank_literals(text, false);
  const Tokens tokens = tokenize(blanked);
  return Finder(tokens).run();
}

}  // namespace fathom::tidy
