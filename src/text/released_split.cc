#include "text/released_split.h"

#include <algorithm>
#include <map>

#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace fathom {
namespace {

// Class flags of a code point. A letter, mark, number, punctuation, symbol or space is one of these
// only, since general categories exclude each other.
enum Flag : uint8_t {
  kLetter = 1,
  kMark = 2,
  kNumber = 4,
  kPunctuation = 8,
  kSymbol = 16,
  kSpace = 32,
  kNewline = 64,  // CR and LF, beside kSpace
  kCjk = 128,     // the ideographs, Hiragana and Katakana of the second split
};

constexpr uint8_t kWord = kLetter | kMark;
constexpr uint8_t kSign = kPunctuation | kSymbol;
constexpr size_t kCodePoints = 0x110000;

bool is_ascii_letter(char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }
bool is_ascii_sign(char c) {
  return c > 0x20 && c < 0x7F && !is_ascii_letter(c) && !(c >= '0' && c <= '9');
}

}  // namespace

const std::vector<std::string>& ReleasedSplit::patterns() {
  static const std::vector<std::string> kPatterns = {
      R"(\p{N}{1,3})",
      // U+4E00-9FA5, U+3040-309F, U+30A0-30FF
      "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+",
      R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)"
      "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|"
      R"(\s+(?!\S)|\s+)"};
  return kPatterns;
}

ReleasedSplit::ReleasedSplit() {
  std::vector<uint8_t> flags(kCodePoints);
  const auto mark = [&](char32_t first, char32_t last, uint8_t flag) {
    for (char32_t c = first; c <= last; ++c) flags[c] |= flag;
  };
  const auto mark_class = [&](UnicodeClass unicode_class, uint8_t flag) {
    for (const auto& range : unicode_class_ranges(unicode_class))
      mark(range.first, range.last, flag);
  };
  mark_class(UnicodeClass::kLetter, kLetter);
  mark_class(UnicodeClass::kMark, kMark);
  mark_class(UnicodeClass::kNumber, kNumber);
  mark_class(UnicodeClass::kPunctuation, kPunctuation);
  mark_class(UnicodeClass::kSymbol, kSymbol);
  mark_class(UnicodeClass::kSpace, kSpace);
  mark('\n', '\n', kNewline);
  mark('\r', '\r', kNewline);
  mark(0x4E00, 0x9FA5, kCjk);
  mark(0x3040, 0x30FF, kCjk);

  std::map<std::string_view, uint16_t> known;
  for (size_t block = 0; block < kCodePoints / 256; ++block) {
    const std::string_view bytes{reinterpret_cast<const char*>(flags.data()) + block * 256, 256};
    const auto [at, is_new] = known.emplace(bytes, static_cast<uint16_t>(known.size()));
    block_of_.push_back(at->second);
    if (is_new) blocks_.insert(blocks_.end(), bytes.begin(), bytes.end());
  }
}

// One call of split(): p_ moves over the text, pieces are put out as it goes.
class ReleasedSplit::Scanner {
 public:
  Scanner(const ReleasedSplit& tables, std::string_view text, size_t base,
          std::vector<size_t>* ends)
      : tables_(tables),
        begin_(text.data()),
        end_(begin_ + text.size()),
        base_(base),
        ends_(ends) {}

  // The first two splits: the text falls into numbers of 1 to 3 digits, runs of CJK, and the rest.
  void run() {
    const char* p = begin_;
    while (p < end_) {
      const uint8_t first = flags_at(p);
      const char* region_end = next(p);
      if (first & kNumber) {
        for (int n = 1; n < 3 && has(region_end, end_, kNumber); ++n) region_end = next(region_end);
        put(region_end);  // the third split matches nothing inside a number
      } else if (first & kCjk) {
        region_end = skip(region_end, end_, kCjk);
        split_region(p, region_end);
      } else {
        region_end = skip_other(region_end);
        split_region(p, region_end);
      }
      p = region_end;
    }
  }

 private:
  uint8_t flags_at(const char* p) const {
    const auto byte = static_cast<uint8_t>(*p);
    return byte < 0x80 ? tables_.blocks_[byte] : tables_.flags(utf8_next(&p));
  }
  static const char* next(const char* p) {
    const auto byte = static_cast<uint8_t>(*p);
    return p + (byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4);
  }
  bool has(const char* p, const char* end, uint8_t flags) const {
    return p < end && (flags_at(p) & flags) != 0;
  }
  const char* skip(const char* p, const char* end, uint8_t flags) const {
    while (has(p, end, flags)) p = next(p);
    return p;
  }
  const char* skip_other(const char* p) const {
    while (p < end_ && (flags_at(p) & (kNumber | kCjk)) == 0) p = next(p);
    return p;
  }
  void put(const char* piece_end) { ends_->push_back(base_ + (piece_end - begin_)); }

  // The third split inside [p, end): first matching alternative at each place, gaps kept.
  void split_region(const char* p, const char* end) {
    const char* gap = p;
    while (p < end) {
      const char* match_end = match(p, end);
      if (match_end == nullptr) {
        p = next(p);
        continue;
      }
      if (gap < p) put(p);
      put(match_end);
      p = gap = match_end;
    }
    if (gap < end) put(end);
  }

  // The end of the match that starts at p, or nullptr. The letters are those of the specification.
  const char* match(const char* p, const char* end) const {
    const uint8_t first = flags_at(p);
    if (first & kWord) return skip(next(p), end, kWord);  // b, without its optional character
    const char* second = next(p);
    if (first & kSign) {
      if (is_ascii_sign(*p) && second < end && is_ascii_letter(*second)) {  // a
        while (second < end && is_ascii_letter(*second)) ++second;
        return second;
      }
      return skip(skip(second, end, kSign), end, kNewline);  // c, without a space
    }
    if ((first & kNewline) == 0 && has(second, end, kWord)) return skip(second, end, kWord);  // b
    if (*p == ' ' && has(second, end, kSign)) {                                               // c
      return skip(skip(second, end, kSign), end, kNewline);
    }
    return (first & kSpace) ? match_space(p, end) : nullptr;
  }

  // d, e, f: at p stands a space that no letter, mark or sign takes.
  const char* match_space(const char* p, const char* end) const {
    const char* after_newline = nullptr;
    const char* last = p;
    const char* q = p;
    while (q < end) {
      const uint8_t flags = flags_at(q);
      if ((flags & kSpace) == 0) break;
      last = q;
      q = next(q);
      if (flags & kNewline) after_newline = q;
    }
    if (after_newline != nullptr) return after_newline;  // d: up to the last newline of the run
    if (q == end || last == p) return q;                 // e at the end of the piece, or f
    return last;                                         // e: all but the last space
  }

  const ReleasedSplit& tables_;
  const char* begin_;
  const char* end_;
  size_t base_;
  std::vector<size_t>* ends_;
};

void ReleasedSplit::split(std::string_view text, size_t base, std::vector<size_t>* ends) const {
  Scanner(*this, text, base, ends).run();
}

}  // namespace fathom
