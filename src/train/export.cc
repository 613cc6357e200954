#include "train/export.h"

#include <c10/core/GradMode.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>
#include <vector>

#include "base/file.h"
#include "train/json.h"
#include "train/quant.h"

namespace fathom::train {

namespace {

constexpr size_t kShardBytes = size_t{16} << 20;

struct Entry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

std::string raw(const Tensor& value) {
  const Tensor host = value.to(at::kCPU).contiguous();
  return {static_cast<const char*>(host.const_data_ptr()), host.nbytes()};
}

Entry entry(const std::string& name, const std::string& dtype, const Tensor& value) {
  return {name, dtype, value.sizes().vec(), raw(value)};
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
      out.push_back(entry(name + ".weight", shared ? "F8_E4M3" : "I8",
                          shared ? coded.codes : pack_fp4(coded.codes)));
      out.push_back(entry(name + ".scale", "F8_E8M0", coded.scales));
    }
  }
}

void add_param(std::vector<Entry>& out, const Params& params, const ParamSpec& spec) {
  const Tensor value = params.master(spec).to(at::kCPU);
  const std::string name = stored_name(spec);
  if (spec.store == Store::kFp4) {
    add_experts(out, spec, value);
  } else if (spec.store == Store::kF32) {
    out.push_back(entry(name, "F32", value));
  } else if (spec.store == Store::kBf16) {
    out.push_back(entry(bare(spec) ? name : name + ".weight", "BF16", value.to(at::kBFloat16)));
  } else {
    const Coded coded =
        spec.store == Store::kRows ? quant_fp8_rows(value) : quant_fp8_matrix(value);
    out.push_back(entry(name + ".weight", "F8_E4M3", coded.codes));
    out.push_back(entry(name + ".scale", "F8_E8M0", coded.scales));
  }
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    out += (i == 0 ? "" : ",") + std::to_string(shape[i]);
  }
  return out + "]";
}

std::string file_bytes(const std::vector<Entry>& entries, size_t begin, size_t end) {
  std::string header = "{";
  size_t at = 0;
  for (size_t i = begin; i < end; ++i) {
    const Entry& e = entries[i];
    header += (i == begin ? "" : ",") + json_quote(e.name) + ":{\"dtype\":\"" + e.dtype +
              "\",\"shape\":" + shape_text(e.shape) + ",\"data_offsets\":[" + std::to_string(at) +
              "," + std::to_string(at + e.bytes.size()) + "]}";
    at += e.bytes.size();
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  std::string out(reinterpret_cast<const char*>(&length), 8);
  out += header;
  for (size_t i = begin; i < end; ++i) {
    out += entries[i].bytes;
  }
  return out;
}

// First entry of each shard, and the end.
std::vector<size_t> shard_bounds(const std::vector<Entry>& entries) {
  std::vector<size_t> bounds{0};
  size_t bytes = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const size_t cost = entries[i].bytes.size() + entries[i].name.size() + 128;
    if (bytes + cost > kShardBytes) {
      bounds.push_back(i);
      bytes = 0;
    }
    bytes += cost;
  }
  bounds.push_back(entries.size());
  return bounds;
}

Result<void> write_shards(const std::vector<Entry>& entries, const std::string& folder) {
  const auto bounds = shard_bounds(entries);
  size_t total = 0;
  std::string map;
  for (size_t s = 0; s + 1 < bounds.size(); ++s) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", s + 1, bounds.size() - 1);
    FATHOM_RETURN_IF_ERROR(
        write_file_atomic(folder + "/" + name, file_bytes(entries, bounds[s], bounds[s + 1])));
    for (size_t i = bounds[s]; i < bounds[s + 1]; ++i) {
      total += entries[i].bytes.size();
      map += (map.empty() ? "" : ",\n") + ("    " + json_quote(entries[i].name)) + ": \"" + name +
             "\"";
    }
  }
  return write_file_atomic(folder + "/model.safetensors.index.json",
                           "{\n  \"metadata\": {\"total_size\": " + std::to_string(total) +
                               "},\n  \"weight_map\": {\n" + map + "\n  }\n}\n");
}

int64_t type_size(const std::string& dtype) {
  return dtype == "F32" || dtype == "I32" ? 4 : (dtype == "BF16" ? 2 : 1);
}

Tensor typed(const std::string& dtype, const std::vector<int64_t>& shape, const char* bytes) {
  const auto type = dtype == "F32"    ? at::kFloat
                    : dtype == "I32"  ? at::kInt
                    : dtype == "BF16" ? at::kBFloat16
                                      : at::kByte;
  Tensor out = at::empty(shape, type);
  std::memcpy(out.mutable_data_ptr(), bytes, out.nbytes());
  return out;
}

using Tensors = std::map<std::string, Tensor>;

Result<Tensor> wanted(const Tensors& tensors, const std::string& name) {
  const auto it = tensors.find(name);
  if (it == tensors.end()) {
    return not_found("checkpoint: tensor " + name + " is missing");
  }
  return it->second;
}

Tensor fp8_value(const Tensor& codes) { return codes.view(at::kFloat8_e4m3fn).to(at::kFloat); }

Tensor grid_scale(const Tensor& scale, const Tensor& like) {
  const Tensor wide = e8m0_value(scale).repeat_interleave(32, 0).repeat_interleave(32, 1);
  return wide.narrow(0, 0, like.size(0)).narrow(1, 0, like.size(1));
}

Result<Tensor> load_coded(const Tensors& tensors, const std::string& name, Store store) {
  FATHOM_ASSIGN_OR_RETURN(const Tensor codes, wanted(tensors, name + ".weight"));
  FATHOM_ASSIGN_OR_RETURN(const Tensor scale, wanted(tensors, name + ".scale"));
  if (store == Store::kFp4) {
    return e2m1_value(unpack_fp4(codes)) * e8m0_value(scale).repeat_interleave(32, 1);
  }
  if (store == Store::kRows) {
    return fp8_value(codes) * e8m0_value(scale).repeat_interleave(32, 1);
  }
  return fp8_value(codes) * grid_scale(scale, codes);
}

Result<void> load_param(const Tensors& tensors, Params& params, const ParamSpec& spec) {
  Tensor out = params.master(spec);
  if (spec.store == Store::kFp4) {
    const auto parts = expert_parts(spec);
    for (int64_t e = 0; e < expert_count(spec); ++e) {
      const Store store = e + 1 == expert_count(spec) ? Store::kFp8 : Store::kFp4;
      for (size_t p = 0; p < parts.size(); ++p) {
        FATHOM_ASSIGN_OR_RETURN(const Tensor w,
                                load_coded(tensors, expert_name(spec, e, parts[p]), store));
        expert_matrix(out, spec, static_cast<int64_t>(p), e).copy_(w);
      }
    }
    return {};
  }
  const std::string name = stored_name(spec);
  if (spec.store == Store::kF32 || spec.store == Store::kBf16) {
    FATHOM_ASSIGN_OR_RETURN(const Tensor w, wanted(tensors, bare(spec) ? name : name + ".weight"));
    out.copy_(w);
    return {};
  }
  FATHOM_ASSIGN_OR_RETURN(const Tensor w, load_coded(tensors, name, spec.store));
  out.copy_(w);
  return {};
}

}  // namespace

Result<void> export_model(Model& model, const Params& params, const std::string& folder) {
  const at::NoGradGuard no_grad;
  std::filesystem::create_directories(folder);
  std::vector<Entry> entries;
  for (const ParamSpec& spec : params.specs()) {
    add_param(entries, params, spec);
  }
  for (int64_t l = 0; l < model.config().num_hidden_layers; ++l) {
    const std::string name = "layers." + std::to_string(l) + ".ffn.gate.";
    entries.push_back(entry(name + "bias", "F32", model.route_bias()[l]));
    entries.push_back(entry(name + "bias_vl", "F32", model.route_bias()[l]));
  }
  FATHOM_RETURN_IF_ERROR(write_shards(entries, folder));
  return write_file_atomic(folder + "/config.json", config_json(model.config()));
}

Result<void> import_model(Model& model, Params& params, const std::string& folder) {
  const at::NoGradGuard no_grad;
  FATHOM_ASSIGN_OR_RETURN(const std::string text,
                          read_file(folder + "/model.safetensors.index.json"));
  FATHOM_ASSIGN_OR_RETURN(const Json index, Json::parse(text));
  const Json* map = index.find("weight_map");
  if (map == nullptr) {
    return invalid(folder + "/model.safetensors.index.json: weight_map is absent");
  }
  std::set<std::string> files;
  for (const auto& [name, file] : map->members()) {
    files.insert(file.text());
  }
  Tensors tensors;
  for (const std::string& file : files) {
    FATHOM_ASSIGN_OR_RETURN(Tensors more, read_safetensors(folder + "/" + file));
    tensors.merge(more);
  }
  for (const ParamSpec& spec : params.specs()) {
    FATHOM_RETURN_IF_ERROR(load_param(tensors, params, spec));
  }
  for (int64_t l = 0; l < model.config().num_hidden_layers; ++l) {
    FATHOM_ASSIGN_OR_RETURN(const Tensor bias,
                            wanted(tensors, "layers." + std::to_string(l) + ".ffn.gate.bias"));
    model.route_bias()[l].copy_(bias);
  }
  params.sync(false);
  return {};
}

Result<Tensors> read_safetensors(const std::string& path) {
  FATHOM_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  const auto* begin = reinterpret_cast<const char*>(file.bytes().data());
  uint64_t length = 0;
  if (file.bytes().size() < 8) {
    return invalid(path + ": shorter than a header");
  }
  std::memcpy(&length, begin, 8);
  if (length > file.bytes().size() - 8) {
    return invalid(path + ": header of " + std::to_string(length) + " bytes does not fit");
  }
  FATHOM_ASSIGN_OR_RETURN(const Json header, Json::parse(std::string_view(begin + 8, length)));
  const size_t room = file.bytes().size() - 8 - length;
  Tensors out;
  for (const auto& [name, entry] : header.members()) {
    const Json* dtype = entry.find("dtype");
    const Json* shape = entry.find("shape");
    const Json* offsets = entry.find("data_offsets");
    if (dtype == nullptr || shape == nullptr || offsets == nullptr) {
      continue;  // __metadata__
    }
    std::vector<int64_t> sizes;
    int64_t count = type_size(dtype->text());
    for (const Json& size : shape->items()) {
      sizes.push_back(size.as_int());
      count *= size.as_int();
    }
    const auto from = static_cast<size_t>(offsets->items().at(0).as_int());
    const auto to = static_cast<size_t>(offsets->items().at(1).as_int());
    if (to > room || from > to || to - from != static_cast<size_t>(count)) {
      return invalid(path + ": tensor " + name + " has bytes that do not fit its shape");
    }
    out[name] = typed(dtype->text(), sizes, begin + 8 + length + from);
  }
  return out;
}

Result<void> write_safetensors(const std::string& path, const Tensors& tensors) {
  std::vector<Entry> entries;
  for (const auto& [name, value] : tensors) {
    const Tensor plain = value.scalar_type() == at::kLong ? value.to(at::kInt) : value;
    const auto type = plain.scalar_type();
    entries.push_back(entry(name,
                            type == at::kFloat      ? "F32"
                            : type == at::kBFloat16 ? "BF16"
                            : type == at::kInt      ? "I32"
                                                    : "U8",
                            type == at::kBool ? plain.to(at::kByte) : plain));
  }
  return write_file_atomic(path, file_bytes(entries, 0, entries.size()));
}

}  // namespace fathom::train
