#include "ops/cuda/recording.h"

namespace fathom::cuda {

Recording::~Recording() { drop(); }

void Recording::drop() {
  if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
  graph_ = nullptr;
  kept_.clear();
  tables_.drop_kept();
}

void Recording::begin(int64_t horizon) {
  FATHOM_CHECK(!active());
  // What runs now may use what the last recording kept.
  memory_.check(cudaStreamSynchronize(memory_.stream()), "record");
  drop();
  horizon_ = horizon;
  ++number_;
  memory_.check(cudaStreamBeginCapture(memory_.stream(), cudaStreamCaptureModeRelaxed), "record");
  memory_.set_recording(true);
}

void* Recording::room(int64_t bytes) {
  Result<Buffer> made = memory_.allocate(bytes, "memory of a recorded step");
  if (!made) {
    memory_.fail(made.error());
    return nullptr;
  }
  kept_.push_back(std::move(*made));
  return kept_.back().data();
}

void* Recording::keep(std::span<const std::byte> bytes) {
  const auto n = static_cast<int64_t>(bytes.size());
  void* copy = room(n);
  if (copy != nullptr) memory_.write(copy, bytes.data(), n);
  return copy;
}

Result<void> Recording::end() {
  AdvanceRows advance;
  for (const Mirror::Kept& kept : tables_.kept_rows()) {
    const auto words = static_cast<int64_t>(kept.bytes.size() / sizeof(int64_t));
    constexpr int64_t kWordsOfRow = 7;  // position, sequence, and a sequence's entry
    FATHOM_CHECK(words % kWordsOfRow == 0 && advance.n_tables < kMostTables);
    advance.tables[advance.n_tables++] = reinterpret_cast<int64_t*>(kept.copy.data());
    advance.n_rows = words / kWordsOfRow;
  }
  if (!memory_.failed()) {
    launch_advance(advance, memory_.stream());
    memory_.check(cudaGetLastError(), "record");
  }
  memory_.set_recording(false);
  cudaGraph_t graph = nullptr;
  memory_.check(cudaStreamEndCapture(memory_.stream(), &graph), "record");
  if (!memory_.failed()) memory_.check(cudaGraphInstantiate(&graph_, graph, 0), "record");
  if (graph != nullptr) cudaGraphDestroy(graph);
  generation_ = scratch_.generation();
  const Result<void> done = memory_.sync();
  if (!done) drop();
  return done;
}

bool Recording::valid() const { return graph_ != nullptr && generation_ == scratch_.generation(); }

void Recording::run() {
  FATHOM_CHECK(valid());
  if (!memory_.failed()) {
    memory_.check(cudaGraphLaunch(graph_, memory_.stream()), "recorded step");
  }
}

}  // namespace fathom::cuda
