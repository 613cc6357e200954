#pragma once

// Isolating splits by regular expressions, one after the other, each applied to every piece that
// the one before produced, matches and gaps alike; a piece is matched as a text of its own.
//
// Thread rule: split() may run in several threads.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fathom {

class RegexSplit {
  struct Matcher;

 public:
  // What split() needs of the engine: a megabyte of stack, mapped at the first use. One thread uses
  // it at a time; kept from text to text it is mapped once.
  class Scratch {
   public:
    Scratch();
    Scratch(Scratch&&) noexcept;
    Scratch& operator=(Scratch&&) noexcept;
    ~Scratch();

   private:
    friend class RegexSplit;
    std::unique_ptr<Matcher> matcher_;
  };

  // Patterns as written in a tokenizer.json; the error starts with the pattern's index.
  static Result<RegexSplit> compile(const std::vector<std::string>& patterns);

  RegexSplit(RegexSplit&&) noexcept;
  RegexSplit& operator=(RegexSplit&&) noexcept;
  ~RegexSplit();

  // Appends to *ends the end of every piece of `text`, which is well-formed UTF-8, each moved by
  // `base`. Pieces are not empty and cover the text. kExhausted, with pattern and byte, where a
  // pattern backtracks too much; then *ends is as before. What is split at all is split alike on
  // every machine.
  Result<void> split(std::string_view text, size_t base, Scratch* scratch,
                     std::vector<size_t>* ends) const;

 private:
  struct Program;
  explicit RegexSplit(std::vector<std::unique_ptr<Program>> programs);

  std::vector<std::unique_ptr<Program>> programs_;
};

}  // namespace fathom
