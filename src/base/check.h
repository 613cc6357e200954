#pragma once

// FATHOM_CHECK stops the program on a bug; it is on in release builds. One condition each.
// FATHOM_DCHECK is for hot loops and is on in debug and sanitizer builds only.
// Expected failures are Result values (base/result.h), never checks.

namespace fathom {

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace fathom

#define FATHOM_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::fathom::check_failed(#condition, __FILE__, __LINE__))

#ifdef NDEBUG
#define FATHOM_DCHECK(condition) static_cast<void>(false && (condition))
#else
#define FATHOM_DCHECK(condition) FATHOM_CHECK(condition)
#endif
