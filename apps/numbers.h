#pragma once

// Numbers of the command line: decimal digits and nothing else, so that a slip of the keyboard is
// wrong usage and never another number. For CLI11's check() and transform().

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace CLI {
class Validator;
}

namespace fathom {

CLI::Validator whole_number(int64_t low, int64_t high);
CLI::Validator any_seed();  // 0 to 2^64 - 1
CLI::Validator real_number(double low, double high);
// A whole number that may end in K, M, G or T (powers of 1024, also kB and KiB); a transform.
CLI::Validator size_number(int64_t low, int64_t high);
CLI::Validator list_of_ids();

// The whole of `text`; nothing: it is no number, or not of 64 bits.
std::optional<int64_t> parse_whole(std::string_view text);

// "1, 2,3": blanks around a number are allowed, empty places are not. An empty text is no list.
Result<std::vector<int32_t>> parse_ids(std::string_view text);

// A value in a message: quoted, and cut, where it is not fit for a line.
std::string shown_value(std::string_view text);

}  // namespace fathom
