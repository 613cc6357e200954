#pragma once

// Released checkpoint format (spec/backbone.md 6): writing the trained model as safetensors shards
// and reading such a checkpoint into the trainer's parameters.

#include <ATen/ATen.h>

#include <map>
#include <string>

#include "base/result.h"
#include "train/model.h"

namespace fathom::train {

// Writes config.json, the index and shards of at most 16 MiB into `folder`, which holds no
// checkpoint yet. FP8, FP4 and row
// parameters are quantised from the fp32 master, as Params::sync(true) simulates them.
Result<void> export_model(Model& model, const Params& params, const std::string& folder);

// Fills the master with the values of a checkpoint (dequantised) and the router biases. Refuses a
// checkpoint that is not, tensor for tensor, what the model's configuration expects.
Result<void> import_model(Model& model, Params& params, const std::string& folder);

// All tensors of a checkpoint or of one safetensors file by name: BF16, F32, I32 and I64 as such,
// other types as bytes.
Result<std::map<std::string, at::Tensor>> read_tensors(const std::string& path);

}  // namespace fathom::train
