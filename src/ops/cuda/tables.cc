#include "ops/cuda/tables.h"

#include <algorithm>
#include <cstring>

namespace fathom::cuda {

const void* Mirror::keep(std::span<const std::byte> bytes) {
  for (const Kept& kept : kept_) {
    if (std::ranges::equal(bytes, kept.bytes)) return kept.copy.data();
  }
  const auto n = static_cast<int64_t>(bytes.size());
  Result<Buffer> copy = memory_.allocate(n, "tables of a recorded step");
  if (!copy) {
    memory_.fail(copy.error());
    return nullptr;
  }
  memory_.write(copy->data(), bytes.data(), n);
  kept_.push_back({{bytes.begin(), bytes.end()}, std::move(*copy)});
  return kept_.back().copy.data();
}

const void* Mirror::update(std::span<const std::byte> bytes) {
  if (memory_.recording()) return keep(bytes);
  if (copy_.data() != nullptr && std::ranges::equal(bytes, last_)) return copy_.data();
  const auto n = static_cast<int64_t>(bytes.size());
  if (copy_.data() == nullptr || copy_.bytes() < n) {
    memory_.check(cudaStreamSynchronize(memory_.stream()), "tables of a step");
    copy_ = Buffer();
    Result<Buffer> grown = memory_.allocate(2 * n + 4096, "tables of a step");
    if (!grown) {
      memory_.fail(grown.error());
      return nullptr;
    }
    copy_ = std::move(*grown);
  }
  last_.assign(bytes.begin(), bytes.end());
  memory_.write(copy_.data(), bytes.data(), n);
  if (memory_.failed()) last_.clear();
  return copy_.data();
}

void StepTables::drop_kept() {
  for (Mirror* mirror : {&rows_, &blocks_, &slots_}) mirror->drop_kept();
}

RowTable StepTables::rows(const Rows& rows) {
  const auto N = static_cast<size_t>(rows.n_rows());
  const auto S = static_cast<size_t>(rows.n_sequences());
  std::vector<int64_t> words(2 * N);
  for (size_t r = 0; r < N; ++r) {
    words[r] = rows.position(static_cast<int64_t>(r));
    words[N + r] = rows.sequence_of(static_cast<int64_t>(r));
  }
  for (size_t s = 0; s < S; ++s) {
    const SequenceRows& q = rows.sequence(static_cast<int64_t>(s));
    const int64_t first_row = rows.first_row(static_cast<int64_t>(s));
    words.insert(words.end(), {q.n_rows, q.first_position, q.window_low, q.write_from, first_row});
  }
  const auto* copy = static_cast<const int64_t*>(rows_.update(std::as_bytes(std::span(words))));
  if (copy == nullptr) return {};
  return {.position = copy,
          .sequence = copy + N,
          .sequences = reinterpret_cast<const SequenceEntry*>(copy + 2 * N),
          .n_rows = rows.n_rows(),
          .n_sequences = rows.n_sequences()};
}

BlockTable StepTables::blocks(const KvView& view) {
  size_t stride = 1;
  for (const auto& list : view.blocks) stride = std::max(stride, list.size());
  std::vector<uint32_t> ids(stride * view.blocks.size());
  for (size_t s = 0; s < view.blocks.size(); ++s) {
    const auto& list = view.blocks[s];
    if (!list.empty()) std::memcpy(&ids[s * stride], list.data(), list.size_bytes());
  }
  return {.base = view.base,
          .block_bytes = view.block_bytes,
          .ids = static_cast<const uint32_t*>(blocks_.update(std::as_bytes(std::span(ids)))),
          .stride = static_cast<int64_t>(stride),
          .stream = view.stream};
}

SlotTable StepTables::slots(const SlotView& view) {
  return {.base = view.base,
          .slot_bytes = view.slot_bytes,
          .ids = static_cast<const uint32_t*>(slots_.update(std::as_bytes(view.slots))),
          .stream = view.stream};
}

}  // namespace fathom::cuda
