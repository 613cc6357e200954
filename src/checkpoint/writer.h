#pragma once

// CheckpointWriter: a checkpoint of known tensors, written in any order and by any number of
// threads without holding it in memory.
//
//   FATHOM_ASSIGN_OR_RETURN(auto writer, CheckpointWriter::create(folder, tensors, 16 << 20));
//   FATHOM_RETURN_IF_ERROR(writer.write("embed.weight", bytes));
//   ...
//   FATHOM_RETURN_IF_ERROR(writer.finish());
//
// Shards are model-00001-of-000NN.safetensors beside model.safetensors.index.json. Until finish()
// has synced and renamed them they are temporary files (base/temporary.h); a writer that is dropped
// before, or whose finish() fails, takes them away again, and one that begins takes away what a
// dead process left, also one that died between two renames. Each shard's data starts on a multiple
// of 64 bytes and is ordered so that every tensor is aligned for its dtype.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/expected.h"

namespace fathom {

class CheckpointWriter {
 public:
  // Makes the folder if needed, locks it for as long as this writer lives and reserves the room on
  // the disk. Refuses a folder that already holds *.safetensors (kInvalid), that another process
  // writes or whose disk has not the room (kExhausted). A shard exceeds max_shard_bytes (header
  // included) only if it holds a single tensor.
  static Result<CheckpointWriter> create(const std::string& folder,
                                         std::vector<ExpectedTensor> tensors,
                                         int64_t max_shard_bytes);

  CheckpointWriter(CheckpointWriter&&) noexcept;
  CheckpointWriter& operator=(CheckpointWriter&&) noexcept;
  ~CheckpointWriter();

  std::span<const ExpectedTensor> tensors() const;

  // Bytes [offset, offset + size) of tensors()[tensor]. Thread-safe. kInvalid where
  // one of these bytes was written before.
  Result<void> write(size_t tensor, int64_t offset, std::span<const std::byte> bytes);
  // A whole tensor.
  Result<void> write(std::string_view name, std::span<const std::byte> bytes);

  // A further file of the folder, written now and renamed with the shards: all are there or none.
  Result<void> add_file(const std::string& name, std::string_view content);

  // Checks that every byte was written, writes the index, syncs and renames. `accept` may be null:
  // it looks at the finished folder, and where it fails all is taken away as well.
  Result<void> finish(const std::function<Result<void>()>& accept = {});

 private:
  struct State;
  explicit CheckpointWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fathom
