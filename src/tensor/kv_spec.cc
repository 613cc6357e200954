#include "tensor/kv_spec.h"

#include <string>

#include "base/check.h"

namespace fathom {
namespace {

Result<void> check_width(const char* what, int64_t width, int64_t group) {
  if (width > 0 && width % group == 0) return {};
  return invalid(std::string("KvSpec: ") + what + ": wanted a positive multiple of " +
                 std::to_string(group) + ", found " + std::to_string(width));
}

int64_t align_to_line(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Lays a stream's payload plane and scale plane after `offset` and returns the end.
int64_t place(KvStream& stream, int64_t offset) {
  stream.payload_offset = offset;
  stream.scale_offset = offset + stream.rows * stream.payload_bytes;
  return stream.scale_offset + stream.rows * stream.scale_bytes;
}

}  // namespace

Result<KvSpec> KvSpec::make(const KvGeometry& geometry) {
  FATHOM_RETURN_IF_ERROR(check_width("head_dim", geometry.head_dim, 32));
  FATHOM_RETURN_IF_ERROR(check_width("index_head_dim", geometry.index_head_dim, 32));
  FATHOM_RETURN_IF_ERROR(check_width("sliding_window", geometry.sliding_window, 1));
  KvSpec spec;
  for (const auto& [layer, ratio] : geometry.sources) {
    if (ratio < 1 || kBlockTokens % ratio != 0) {
      return invalid("KvSpec: compression ratio of layer " + std::to_string(layer) +
                     ": wanted a divisor of " + std::to_string(kBlockTokens) + ", found " +
                     std::to_string(ratio));
    }
    KvStream stream = {.role = KvRole::kMain,
                       .layer = layer,
                       .ratio = ratio,
                       .rows = kBlockTokens / ratio,
                       .payload_bytes = geometry.head_dim / 2,
                       .scale_bytes = geometry.head_dim / 16};
    spec.block_bytes_ = place(stream, spec.block_bytes_);
    spec.streams_.push_back(stream);
    stream.role = KvRole::kIndex;
    stream.payload_bytes = geometry.index_head_dim / 2;
    stream.scale_bytes = geometry.index_head_dim / 32;
    spec.block_bytes_ = place(stream, spec.block_bytes_);
    spec.streams_.push_back(stream);
  }
  for (int layer = 0; layer < geometry.n_layers; ++layer) {
    KvStream stream = {.role = KvRole::kWindow,
                       .layer = layer,
                       .rows = geometry.sliding_window,
                       .payload_bytes = geometry.head_dim,
                       .scale_bytes = geometry.head_dim / 32};
    spec.window_bytes_ = place(stream, spec.window_bytes_);
    spec.streams_.push_back(stream);
  }
  // Remainders are fp32: they start on a cache line behind the windows.
  int64_t slot_end = align_to_line(spec.window_bytes_);
  for (const auto& [layer, ratio] : geometry.sources) {
    if (ratio == 1) continue;
    KvStream stream = {.role = KvRole::kRemainder,
                       .layer = layer,
                       .ratio = ratio,
                       .rows = 2 * (ratio - 1),
                       .payload_bytes = geometry.head_dim * 4};
    slot_end = place(stream, slot_end);
    spec.remainder_bytes_ += stream.rows * stream.record_bytes();
    spec.streams_.push_back(stream);
  }
  spec.session_bytes_ = align_to_line(slot_end);
  return spec;
}

Sha256Digest KvSpec::id() const {
  std::vector<int64_t> numbers = {block_bytes_, session_bytes_};
  for (const KvStream& s : streams_) {
    numbers.insert(numbers.end(),
                   {static_cast<int64_t>(s.role), s.layer, s.ratio, s.rows, s.payload_bytes,
                    s.scale_bytes, s.payload_offset, s.scale_offset});
  }
  return sha256(std::as_bytes(std::span(numbers)));
}

const KvStream& KvSpec::stream(KvRole role, int layer) const {
  const KvStream* found = nullptr;
  for (const KvStream& stream : streams_) {
    if (stream.role == role && stream.layer == layer) found = &stream;
  }
  FATHOM_CHECK(found != nullptr);
  return *found;
}

}  // namespace fathom
