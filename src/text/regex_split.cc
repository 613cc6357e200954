#include "text/regex_split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "base/check.h"
#include "text/pattern_rewrite.h"
#include "text/quote.h"
#include "text/utf8.h"

namespace fathom {
namespace {

std::string engine_message(int code) {
  PCRE2_UCHAR reason[128];
  pcre2_get_error_message(code, reason, sizeof(reason));
  return reinterpret_cast<const char*>(reason);
}

}  // namespace

struct RegexSplit::Program {
  struct FreeCode {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  std::unique_ptr<pcre2_code, FreeCode> code;

  // kExhausted where the engine gives up.
  Result<void> split(std::string_view piece, size_t base, Matcher* matcher,
                     std::vector<size_t>* ends) const;
};

struct RegexSplit::Matcher {
  // Steps of backtracking for one match: far above what the split of a sane pattern takes, and well
  // under a second.
  static constexpr uint32_t kStepsMax = 2'000'000;
  static constexpr uint32_t kHeapKib = uint32_t{1} << 18;
  static constexpr size_t kJitStackBytes = size_t{1} << 20;

  Matcher()
      : match(pcre2_match_data_create(16, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr)) {
    FATHOM_CHECK(match != nullptr);
    FATHOM_CHECK(context != nullptr);
    pcre2_set_match_limit(context, kStepsMax);
    pcre2_set_heap_limit(context, kHeapKib);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;
  ~Matcher() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
  }

  // As pcre2_match. Where compiled code runs out of its stack, the interpreter goes on, which has
  // the heap; its matches are the same.
  int find(const pcre2_code* code, std::string_view piece, size_t from) const {
    const auto run = [&](uint32_t options) {
      return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(piece.data()), piece.size(), from,
                         options, match, context);
    };
    const int n = run(PCRE2_NO_UTF_CHECK);
    return n == PCRE2_ERROR_JIT_STACKLIMIT ? run(PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT) : n;
  }

  pcre2_match_data* match;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;  // null without JIT
};

RegexSplit::Scratch::Scratch() = default;
RegexSplit::Scratch::Scratch(Scratch&&) noexcept = default;
RegexSplit::Scratch& RegexSplit::Scratch::operator=(Scratch&&) noexcept = default;
RegexSplit::Scratch::~Scratch() = default;

RegexSplit::RegexSplit(std::vector<std::unique_ptr<Program>> programs)
    : programs_(std::move(programs)) {}
RegexSplit::RegexSplit(RegexSplit&&) noexcept = default;
RegexSplit& RegexSplit::operator=(RegexSplit&&) noexcept = default;
RegexSplit::~RegexSplit() = default;

Result<RegexSplit> RegexSplit::compile(const std::vector<std::string>& patterns) {
  std::vector<std::unique_ptr<Program>> programs;
  for (size_t i = 0; i < patterns.size(); ++i) {
    const auto rewritten = rewrite_pattern(patterns[i]);
    if (!rewritten) {
      return invalid(
          fmt::format("split pattern {}: {} {}", i, quote(patterns[i]), rewritten.error().message));
    }
    int code_error = 0;
    PCRE2_SIZE offset = 0;
    auto program = std::make_unique<Program>();
    // MULTILINE: ^ and $ are line anchors in the engine that these files are written for.
    program->code.reset(pcre2_compile(
        reinterpret_cast<PCRE2_SPTR>(rewritten->data()), rewritten->size(),
        PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code_error, &offset, nullptr));
    if (program->code == nullptr) {
      return invalid(fmt::format("split pattern {}: {} does not compile: {}", i, quote(patterns[i]),
                                 engine_message(code_error)));
    }
    // Where compiled code is not available the interpreter gives the same matches.
    pcre2_jit_compile(program->code.get(), PCRE2_JIT_COMPLETE);
    programs.push_back(std::move(program));
  }
  return RegexSplit(std::move(programs));
}

Result<void> RegexSplit::Program::split(std::string_view piece, size_t base, Matcher* matcher,
                                        std::vector<size_t>* ends) const {
  size_t done = 0;  // end of the last piece put out
  size_t from = 0;
  while (from < piece.size()) {
    const int n = matcher->find(code.get(), piece, from);
    if (n == PCRE2_ERROR_NOMATCH) break;
    if (n < 0) {
      return exhausted(
          fmt::format("byte {} of the text: wanted a match or none within the bounds "
                      "of backtracking, found: {}",
                      base + from, engine_message(n)));
    }
    const PCRE2_SIZE* found = pcre2_get_ovector_pointer(matcher->match);
    const size_t begin = found[0];
    const size_t end = found[1];
    if (end < begin || begin < from) break;  // \K tricks: treat as no match
    if (begin > done) ends->push_back(base + begin);
    if (end > begin) ends->push_back(base + end);
    done = end;
    from = end;
    if (end == begin && end < piece.size()) from += utf8_step(piece.substr(end)).length;
    if (end == begin && end == piece.size()) break;
  }
  if (done < piece.size()) ends->push_back(base + piece.size());
  return {};
}

Result<void> RegexSplit::split(std::string_view text, size_t base, Scratch* scratch,
                               std::vector<size_t>* ends) const {
  if (text.empty()) return {};
  if (scratch->matcher_ == nullptr) scratch->matcher_ = std::make_unique<Matcher>();
  std::vector<size_t> pieces{text.size()};
  std::vector<size_t> finer;
  for (size_t i = 0; i < programs_.size(); ++i) {
    finer.clear();
    size_t begin = 0;
    for (const size_t end : pieces) {
      const std::string_view piece = text.substr(begin, end - begin);
      if (const auto done = programs_[i]->split(piece, begin, scratch->matcher_.get(), &finer);
          !done) {
        return exhausted(fmt::format("split pattern {}: {}", i, done.error().message));
      }
      begin = end;
    }
    pieces.swap(finer);
  }
  for (const size_t end : pieces) ends->push_back(base + end);
  return {};
}

}  // namespace fathom
