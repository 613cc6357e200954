#pragma once

// Released checkpoint format (spec/backbone.md 6): writing the trained model as safetensors shards
// and reading such a checkpoint into the trainer's parameters.

#include <ATen/ATen.h>

#include <map>
#include <string>

#include "base/result.h"
#include "train/model.h"

namespace fathom::train {

// Writes config.json, the index and shards of at most 16 MiB into `folder`. FP8, FP4 and row
// parameters are quantised from the fp32 master, as Params::sync(true) simulates them.
Result<void> export_model(Model& model, const Params& params, const std::string& folder);

// Fills the master with the values of a checkpoint (dequantised) and the router biases.
Result<void> import_model(Model& model, Params& params, const std::string& folder);

// All tensors of one safetensors file by name: BF16, F32 and I32 as such, other types as bytes.
Result<std::map<std::string, at::Tensor>> read_safetensors(const std::string& path);

// Writes tensors of the types above (and I64 as I32) to one file.
Result<void> write_safetensors(const std::string& path,
                               const std::map<std::string, at::Tensor>& tensors);

}  // namespace fathom::train
