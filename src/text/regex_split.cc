#include "text/regex_split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "text/pattern_rewrite.h"
#include "text/quote.h"
#include "text/utf8.h"

namespace fathom {

struct RegexSplit::Program {
  struct FreeCode {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  struct FreeMatch {
    void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  };
  using MatchData = std::unique_ptr<pcre2_match_data, FreeMatch>;

  std::unique_ptr<pcre2_code, FreeCode> code;

  void split(std::string_view piece, size_t base, pcre2_match_data* match,
             std::vector<size_t>* ends) const;
};

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
      PCRE2_UCHAR reason[128];
      pcre2_get_error_message(code_error, reason, sizeof(reason));
      return invalid(fmt::format("split pattern {}: {} does not compile: {}", i, quote(patterns[i]),
                                 reinterpret_cast<const char*>(reason)));
    }
    // Where the JIT is not available the interpreter gives the same matches.
    pcre2_jit_compile(program->code.get(), PCRE2_JIT_COMPLETE);
    programs.push_back(std::move(program));
  }
  return RegexSplit(std::move(programs));
}

void RegexSplit::Program::split(std::string_view piece, size_t base, pcre2_match_data* match,
                                std::vector<size_t>* ends) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(piece.data());
  size_t done = 0;  // end of the last piece put out
  size_t from = 0;
  while (from < piece.size()) {
    const int n =
        pcre2_match(code.get(), subject, piece.size(), from, PCRE2_NO_UTF_CHECK, match, nullptr);
    if (n < 0) break;
    const PCRE2_SIZE* found = pcre2_get_ovector_pointer(match);
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
}

void RegexSplit::split(std::string_view text, size_t base, std::vector<size_t>* ends) const {
  if (text.empty()) return;
  std::vector<size_t> pieces{text.size()};
  std::vector<size_t> finer;
  for (const auto& program : programs_) {
    const Program::MatchData match(
        pcre2_match_data_create_from_pattern(program->code.get(), nullptr));
    finer.clear();
    size_t begin = 0;
    for (const size_t end : pieces) {
      program->split(text.substr(begin, end - begin), begin, match.get(), &finer);
      begin = end;
    }
    pieces.swap(finer);
  }
  for (const size_t end : pieces) ends->push_back(base + end);
}

}  // namespace fathom
