#include "model/weights.h"

#include <algorithm>

namespace fathom {
namespace {

constexpr int64_t kTensorAlignment = 256;      // of a tensor in the copy
constexpr int64_t kChunk = int64_t{64} << 20;  // of one copy, between two reports

int64_t aligned(int64_t bytes) {
  return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

}  // namespace

int64_t WeightMemory::bytes(const Checkpoint& checkpoint) {
  int64_t all = 0;
  for (const StoredTensor& stored : checkpoint.tensors()) all += aligned(stored.view.bytes());
  return all;
}

Result<WeightMemory> WeightMemory::make(const Checkpoint& checkpoint, DeviceMemory* memory,
                                        const Progress& progress) {
  WeightMemory weights(checkpoint);
  if (memory == nullptr || memory->device() == Device::kCpu) return weights;
  const int64_t all = bytes(checkpoint);
  FATHOM_ASSIGN_OR_RETURN(weights.copy_, memory->allocate(all, "weights"));
  int64_t offset = 0;
  for (const StoredTensor& stored : checkpoint.tensors()) {
    const Tensor& from = stored.view;
    const Tensor to =
        weights.copy_.view(offset, from.dtype, {from.shape.data(), static_cast<size_t>(from.rank)});
    for (int64_t done = 0; done < from.bytes(); done += kChunk) {
      memory->write(static_cast<std::byte*>(to.data) + done,
                    static_cast<const std::byte*>(from.data) + done,
                    std::min(kChunk, from.bytes() - done));
      if (progress) progress(offset + done, all);
    }
    weights.copied_.emplace(stored.name, to);
    offset += aligned(from.bytes());
  }
  FATHOM_RETURN_IF_ERROR(memory->sync());
  if (progress) progress(all, all);
  return weights;
}

Tensor WeightMemory::tensor(const std::string& name) const {
  if (copy_.data() == nullptr) return *checkpoint_->get(name);
  const auto found = copied_.find(name);
  FATHOM_CHECK(found != copied_.end());
  return found->second;
}

Weights::Weights(const ModelPlan& plan, int64_t n_experts, WeightMemory memory)
    : memory_(std::move(memory)) {
  embed = tensor("embed.weight");
  head = bf16("head");
  norm = tensor("norm.weight");
  for (const LayerPlan& layer_plan : plan.layers) layers.push_back(layer(layer_plan, n_experts));
}

Tensor Weights::tensor(const std::string& name) const { return memory_.tensor(name); }

Weight Weights::weight(const std::string& name, WeightFormat format) const {
  return {.data = tensor(name + ".weight"), .scale = tensor(name + ".scale"), .format = format};
}

Weight Weights::bf16(const std::string& name) const {
  return {.data = tensor(name + ".weight"), .format = WeightFormat::kBf16};
}

ExpertWeights Weights::expert(const std::string& prefix, WeightFormat format) const {
  return {.w1 = weight(prefix + ".w1", format),
          .w3 = weight(prefix + ".w3", format),
          .w2 = weight(prefix + ".w2", format)};
}

LayerWeights Weights::layer(const LayerPlan& plan, int64_t n_experts) const {
  const std::string prefix = "layers." + std::to_string(plan.layer) + ".";
  const std::string attn = prefix + "attn.";
  constexpr WeightFormat kFp8 = WeightFormat::kFp8Block32;
  const auto site = [&](const std::string& name) {
    return MhcSite{.fn = tensor(prefix + name + "_fn"),
                   .scale = tensor(prefix + name + "_scale"),
                   .base = tensor(prefix + name + "_base")};
  };
  LayerWeights w;
  w.hc_attn = site("hc_attn");
  w.hc_ffn = site("hc_ffn");
  w.attn_norm = tensor(prefix + "attn_norm.weight");
  w.ffn_norm = tensor(prefix + "ffn_norm.weight");
  w.wq_a = weight(attn + "wq_a", kFp8);
  w.q_norm = tensor(attn + "q_norm.weight");
  w.wq_b = weight(attn + "wq_b", kFp8);
  w.wkv = weight(attn + "wkv", kFp8);
  w.kv_norm = tensor(attn + "kv_norm.weight");
  w.sink = tensor(attn + "attn_sink");
  w.wo_a = weight(attn + "wo_a", kFp8);
  w.wo_b = weight(attn + "wo_b", kFp8);
  if (plan.owns_kv()) {
    w.compressor.wkv = bf16(attn + "compressor.wkv");
    if (plan.ratio > 1) w.compressor.wgate = bf16(attn + "compressor.wgate");
    w.compressor.norm = tensor(attn + "compressor.norm.weight");
    w.compressor.wk = bf16(attn + "indexer.wk");
    w.compressor.k_norm = tensor(attn + "indexer.k_norm.weight");
  }
  if (plan.owns_indexer()) {
    w.indexer.wq_b = weight(attn + "indexer.wq_b", kFp8);
    w.indexer.weights_proj = bf16(attn + "indexer.weights_proj");
  }
  if (plan.engram >= 0) {
    const std::string engram = prefix + "engram.";
    w.engram = {.table = tensor(engram + "embed.weight"),
                .scales = tensor(engram + "embed.scale"),
                .wkv = weight(engram + "wkv", kFp8),
                .q_weight = tensor(engram + "q_weight"),
                .k_weight = tensor(engram + "k_weight")};
  }
  w.gate = bf16(prefix + "ffn.gate");
  w.bias = tensor(prefix + "ffn.gate.bias");
  w.bias_image = tensor(prefix + "ffn.gate.bias_vl");
  for (int64_t e = 0; e < n_experts; ++e) {
    w.experts.push_back(
        expert(prefix + "ffn.experts." + std::to_string(e), WeightFormat::kFp4Row32));
  }
  w.shared = expert(prefix + "ffn.shared_experts", kFp8);
  return w;
}

int64_t Weights::bytes_per_token(int64_t experts_per_token) const {
  const auto of = [](const auto&... parts) { return (int64_t{0} + ... + parts.bytes()); };
  const auto of_site = [&](const MhcSite& s) { return of(s.fn, s.scale, s.base); };
  const auto of_expert = [&](const ExpertWeights& e) { return of(e.w1, e.w3, e.w2); };
  const auto of_present = [](const auto& w) { return w.empty() ? 0 : w.bytes(); };
  int64_t bytes = of(head, norm);
  for (const LayerWeights& w : layers) {
    bytes += of_site(w.hc_attn) + of_site(w.hc_ffn);
    bytes += of(w.attn_norm, w.ffn_norm, w.wq_a, w.q_norm, w.wq_b, w.wkv, w.kv_norm, w.sink);
    bytes += of(w.wo_a, w.wo_b, w.gate, w.bias);
    bytes += of_expert(w.shared) + experts_per_token * of_expert(w.experts.front());
    bytes += of_present(w.compressor.wkv) + of_present(w.compressor.wgate);
    bytes += of_present(w.compressor.wk);
    bytes += of_present(w.indexer.wq_b) + of_present(w.indexer.weights_proj);
    bytes += of_present(w.engram.wkv) + of_present(w.engram.q_weight) * 2;
  }
  return bytes;
}

}  // namespace fathom
