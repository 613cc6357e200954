#pragma once

// Checkpoint: tensors by full name over memory-mapped safetensors files. Const after open; any
// number of threads may read. The views that it hands out live as long as the object.

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "checkpoint/expected.h"
#include "tensor/tensor.h"

namespace fathom {

struct StoredTensor {
  std::string name;
  Tensor view;
  int file = 0;  // in files()
};

class Checkpoint {
 public:
  // A folder: the files that model.safetensors.index.json names, or without an index all
  // *.safetensors; or one file by its path.
  static Result<Checkpoint> open(const std::string& path);

  std::span<const StoredTensor> tensors() const { return tensors_; }  // ascending names
  const StoredTensor* find(std::string_view name) const;
  // The tensor, or an error that names it.
  Result<Tensor> get(std::string_view name) const;
  Result<Tensor> get(const ExpectedTensor& expected) const;

  const std::string& path() const { return path_; }
  std::span<const MappedFile> files() const { return files_; }
  int64_t payload_bytes() const;

  // Everything that is missing, extra, misshapen or of another dtype, and what the index says
  // wrongly; one line each, in the order of `expected`, then of names. Empty: as expected.
  std::vector<std::string> compare(std::span<const ExpectedTensor> expected) const;

 private:
  Checkpoint() = default;

  Result<void> add_file(const std::string& path);
  Result<void> add_index(const std::string& path);
  Result<void> sort_names();
  std::string describe(const StoredTensor& tensor) const;

  std::string path_;
  std::vector<MappedFile> files_;
  std::vector<StoredTensor> tensors_;
  std::vector<Buffer> realigned_;  // tensors that stand unaligned in their file
  std::vector<std::string> index_problems_;
};

// "BF16 [256, 128]"
std::string describe_tensor(DType dtype, std::span<const int64_t> shape);

}  // namespace fathom
