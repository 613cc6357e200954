#include "scarce_memory.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace {

std::atomic<size_t> largest_piece = SIZE_MAX;

void* allocate_if(size_t n) noexcept {
  return n > largest_piece ? nullptr : std::malloc(n == 0 ? 1 : n);
}

void* allocate(size_t n) {
  void* piece = allocate_if(n);
  // More than there can be: the library says so by std::bad_alloc, and asks nobody.
  if (piece == nullptr) piece = std::allocator<char>().allocate(SIZE_MAX);
  return piece;
}

}  // namespace

void* operator new(size_t n) { return allocate(n); }
void* operator new[](size_t n) { return allocate(n); }
void* operator new(size_t n, const std::nothrow_t&) noexcept { return allocate_if(n); }
void* operator new[](size_t n, const std::nothrow_t&) noexcept { return allocate_if(n); }
void operator delete(void* piece) noexcept { std::free(piece); }
void operator delete[](void* piece) noexcept { std::free(piece); }
void operator delete(void* piece, size_t) noexcept { std::free(piece); }
void operator delete[](void* piece, size_t) noexcept { std::free(piece); }
void operator delete(void* piece, const std::nothrow_t&) noexcept { std::free(piece); }
void operator delete[](void* piece, const std::nothrow_t&) noexcept { std::free(piece); }

namespace fathom {

void refuse_pieces_above(size_t n_bytes) { largest_piece = n_bytes; }

}  // namespace fathom
