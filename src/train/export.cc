#include "train/export.h"

#include <c10/core/GradMode.h>

#include <cstring>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/writer.h"
#include "model/inventory.h"
#include "train/quant.h"

namespace fathom::train {

namespace {

constexpr int64_t kShardBytes = int64_t{16} << 20;

struct Entry {
  std::string name;
  DType dtype = DType::kBf16;
  Tensor value;  // bytes of that type, on the host
};

Entry entry(const std::string& name, DType dtype, const Tensor& value) {
  return {name, dtype, value.to(at::kCPU).contiguous()};
}

std::span<const std::byte> bytes_of(const Tensor& value) {
  return {static_cast<const std::byte*>(value.const_data_ptr()), value.nbytes()};
}

// Name in a checkpoint, without .weight and .scale where the tensor has them.
std::string stored_name(const ParamSpec& spec) {
  if (spec.layer < 0) {
    return spec.name;
  }
  std::string name = spec.name;
  if (name.rfind("compressor.", 0) == 0 || name.rfind("indexer.", 0) == 0) {
    name = "attn." + name;
  } else if (name == "engram.table") {
    name = "engram.embed";
  }
  return "layers." + std::to_string(spec.layer) + "." + name;
}

bool bare(const ParamSpec& spec) {
  return spec.store == Store::kF32 || spec.name == "engram.q_weight" ||
         spec.name == "engram.k_weight";
}

Tensor pack_fp4(const Tensor& codes) {
  const Tensor pairs = codes.reshape({codes.size(0), codes.size(1) / 2, 2});
  return pairs.select(2, 0).bitwise_or(pairs.select(2, 1).bitwise_left_shift(4));
}

Tensor unpack_fp4(const Tensor& bytes) {
  const Tensor pairs = at::stack({bytes.bitwise_and(15), bytes.bitwise_right_shift(4)}, 2);
  return pairs.view({bytes.size(0), bytes.size(1) * 2});
}

// The matrix of expert `e` of a stack: w1, w3 as [I, D], w2 as [D, I].
Tensor expert_matrix(const Tensor& stack, const ParamSpec& spec, int64_t which, int64_t e) {
  return spec.name == "ffn.w2t" ? stack[e].t() : stack[which][e];
}

std::vector<std::string> expert_parts(const ParamSpec& spec) {
  return spec.name == "ffn.w2t" ? std::vector<std::string>{"w2"}
                                : std::vector<std::string>{"w1", "w3"};
}

int64_t expert_count(const ParamSpec& spec) { return spec.shape[spec.name == "ffn.w2t" ? 0 : 1]; }

std::string expert_name(const ParamSpec& spec, int64_t e, const std::string& part) {
  const std::string layer = "layers." + std::to_string(spec.layer) + ".ffn.";
  return e + 1 < expert_count(spec) ? layer + "experts." + std::to_string(e) + "." + part
                                    : layer + "shared_experts." + part;
}

void add_experts(std::vector<Entry>& out, const ParamSpec& spec, const Tensor& stack) {
  const auto parts = expert_parts(spec);
  for (int64_t e = 0; e < expert_count(spec); ++e) {
    for (size_t p = 0; p < parts.size(); ++p) {
      const Tensor w = expert_matrix(stack, spec, static_cast<int64_t>(p), e).contiguous();
      const std::string name = expert_name(spec, e, parts[p]);
      const bool shared = e + 1 == expert_count(spec);
      const Coded coded = shared ? quant_fp8_matrix(w) : quant_fp4_rows(w);
      out.push_back(entry(name + ".weight", shared ? DType::kE4m3 : DType::kI8,
                          shared ? coded.codes : pack_fp4(coded.codes)));
      out.push_back(entry(name + ".scale", DType::kE8m0, coded.scales));
    }
  }
}

void add_param(std::vector<Entry>& out, const Params& params, const ParamSpec& spec) {
  const Tensor value = params.master(spec).to(at::kCPU);
  const std::string name = stored_name(spec);
  if (spec.store == Store::kFp4) {
    add_experts(out, spec, value);
  } else if (spec.store == Store::kF32) {
    out.push_back(entry(name, DType::kF32, value));
  } else if (spec.store == Store::kBf16) {
    out.push_back(
        entry(bare(spec) ? name : name + ".weight", DType::kBf16, value.to(at::kBFloat16)));
  } else {
    const Coded coded =
        spec.store == Store::kRows ? quant_fp8_rows(value) : quant_fp8_matrix(value);
    out.push_back(entry(name + ".weight", DType::kE4m3, coded.codes));
    out.push_back(entry(name + ".scale", DType::kE8m0, coded.scales));
  }
}

Result<void> write_entries(const std::vector<Entry>& entries, const std::string& config,
                           const std::string& folder) {
  std::vector<ExpectedTensor> tensors;
  for (const Entry& e : entries) {
    tensors.push_back({e.name, e.dtype, e.value.sizes().vec()});
  }
  FATHOM_ASSIGN_OR_RETURN(CheckpointWriter writer,
                          CheckpointWriter::create(folder, std::move(tensors), kShardBytes));
  for (const Entry& e : entries) {
    FATHOM_RETURN_IF_ERROR(writer.write(e.name, bytes_of(e.value)));
  }
  FATHOM_RETURN_IF_ERROR(writer.add_file("config.json", config));
  return writer.finish();
}

at::ScalarType type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return at::kFloat;
    case DType::kI32:
      return at::kInt;
    case DType::kI64:
      return at::kLong;
    case DType::kBf16:
      return at::kBFloat16;
    default:
      return at::kByte;
  }
}

Tensor copy_of(const fathom::Tensor& stored) {
  Tensor out =
      at::empty({stored.shape.data(), static_cast<size_t>(stored.rank)}, type_of(stored.dtype));
  std::memcpy(out.mutable_data_ptr(), stored.data, out.nbytes());
  return out;
}

Result<Tensor> wanted(const Checkpoint& checkpoint, const std::string& name) {
  FATHOM_ASSIGN_OR_RETURN(const fathom::Tensor stored, checkpoint.get(name));
  return copy_of(stored);
}

Tensor fp8_value(const Tensor& codes) { return codes.view(at::kFloat8_e4m3fn).to(at::kFloat); }

Tensor grid_scale(const Tensor& scale, const Tensor& like) {
  const Tensor wide = e8m0_value(scale).repeat_interleave(32, 0).repeat_interleave(32, 1);
  return wide.narrow(0, 0, like.size(0)).narrow(1, 0, like.size(1));
}

Result<Tensor> load_coded(const Checkpoint& checkpoint, const std::string& name, Store store) {
  FATHOM_ASSIGN_OR_RETURN(const Tensor codes, wanted(checkpoint, name + ".weight"));
  FATHOM_ASSIGN_OR_RETURN(const Tensor scale, wanted(checkpoint, name + ".scale"));
  if (store == Store::kFp4) {
    return e2m1_value(unpack_fp4(codes)) * e8m0_value(scale).repeat_interleave(32, 1);
  }
  if (store == Store::kRows) {
    return fp8_value(codes) * e8m0_value(scale).repeat_interleave(32, 1);
  }
  return fp8_value(codes) * grid_scale(scale, codes);
}

Result<void> load_param(const Checkpoint& checkpoint, Params& params, const ParamSpec& spec) {
  Tensor out = params.master(spec);
  if (spec.store == Store::kFp4) {
    const auto parts = expert_parts(spec);
    for (int64_t e = 0; e < expert_count(spec); ++e) {
      const Store store = e + 1 == expert_count(spec) ? Store::kFp8 : Store::kFp4;
      for (size_t p = 0; p < parts.size(); ++p) {
        FATHOM_ASSIGN_OR_RETURN(const Tensor w,
                                load_coded(checkpoint, expert_name(spec, e, parts[p]), store));
        expert_matrix(out, spec, static_cast<int64_t>(p), e).copy_(w);
      }
    }
    return {};
  }
  const std::string name = stored_name(spec);
  if (spec.store == Store::kF32 || spec.store == Store::kBf16) {
    FATHOM_ASSIGN_OR_RETURN(const Tensor w,
                            wanted(checkpoint, bare(spec) ? name : name + ".weight"));
    out.copy_(w);
    return {};
  }
  FATHOM_ASSIGN_OR_RETURN(const Tensor w, load_coded(checkpoint, name, spec.store));
  out.copy_(w);
  return {};
}

}  // namespace

Result<void> export_model(Model& model, const Params& params, const std::string& folder) {
  const at::NoGradGuard no_grad;
  std::vector<Entry> entries;
  for (const ParamSpec& spec : params.specs()) {
    add_param(entries, params, spec);
  }
  for (int64_t l = 0; l < model.config().num_hidden_layers; ++l) {
    const std::string name = "layers." + std::to_string(l) + ".ffn.gate.";
    entries.push_back(entry(name + "bias", DType::kF32, model.route_bias()[l]));
    entries.push_back(entry(name + "bias_vl", DType::kF32, model.route_bias()[l]));
  }
  return write_entries(entries, config_to_json(model.model_config()), folder);
}

Result<void> import_model(Model& model, Params& params, const std::string& folder) {
  const at::NoGradGuard no_grad;
  FATHOM_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(folder));
  const auto problems = checkpoint.compare(expected_tensors(model.model_config()));
  if (!problems.empty()) {
    return invalid(problems.front());
  }
  for (const ParamSpec& spec : params.specs()) {
    FATHOM_RETURN_IF_ERROR(load_param(checkpoint, params, spec));
  }
  for (int64_t l = 0; l < model.config().num_hidden_layers; ++l) {
    FATHOM_ASSIGN_OR_RETURN(const Tensor bias,
                            wanted(checkpoint, "layers." + std::to_string(l) + ".ffn.gate.bias"));
    model.route_bias()[l].copy_(bias);
  }
  params.sync(false);
  return {};
}

Result<std::map<std::string, Tensor>> read_tensors(const std::string& path) {
  FATHOM_ASSIGN_OR_RETURN(const Checkpoint file, Checkpoint::open(path));
  std::map<std::string, Tensor> out;
  for (const StoredTensor& stored : file.tensors()) {
    out[stored.name] = copy_of(stored.view);
  }
  return out;
}

}  // namespace fathom::train
