#pragma once

// Rewrites a pre-tokeniser pattern so that its Unicode classes no longer depend on the tables of
// the regular-expression library: \p{L} \p{M} \p{N} \p{P} \p{S} (with \P{..} and \p{^..}) and \s
// \S, alone or inside a character class, become explicit Unicode 16 ranges. Everything else is
// kept. Escapes whose meaning would depend on other tables or differs between engines (\d, \w, \b,
// \p{Lu} ...), POSIX classes and class intersections are refused by name.

#include <string>
#include <string_view>

#include "base/result.h"

namespace fathom {

Result<std::string> rewrite_pattern(std::string_view pattern);

}  // namespace fathom
