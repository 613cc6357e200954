#pragma once

// gzip files (RFC 1952), whole in memory.

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fathom::train {

// One member, without a name or a time: same text, same bytes.
std::string gzipped(const std::string& text);

// What the members of a file hold, one after another. Zero bytes may follow the last one, as the
// padding of a tape or a block; gzip takes them too. kInvalid, naming `where` and the byte: another
// kind of file, also an empty one, damaged or cut data, anything else behind a member, more than
// max_bytes unpacked.
Result<std::string> gunzip(std::string_view packed, const std::string& where, size_t max_bytes);

}  // namespace fathom::train
