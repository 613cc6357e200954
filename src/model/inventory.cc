#include "model/inventory.h"

#include "model/layer_plan.h"

namespace fathom {
namespace {

constexpr int64_t kBlock = 32;

int64_t blocks(int64_t n) { return (n + kBlock - 1) / kBlock; }

// Appends tensors below a prefix, in each of the stored forms.
class Enumerator {
 public:
  explicit Enumerator(const ModelConfig& config)
      : text_(config.text_config), vision_(config.vision_config) {}

  void add(const std::string& name, DType dtype, std::vector<int64_t> shape) {
    tensors_.push_back({.name = name, .dtype = dtype, .shape = std::move(shape)});
  }
  void bf16(const std::string& name, std::vector<int64_t> shape) {
    add(name, DType::kBf16, std::move(shape));
  }
  void f32(const std::string& name, std::vector<int64_t> shape) {
    add(name, DType::kF32, std::move(shape));
  }
  // E4M3 with a power-of-two scale for each 32 x 32 block.
  void fp8(const std::string& name, int64_t out, int64_t in) {
    add(name + ".weight", DType::kE4m3, {out, in});
    add(name + ".scale", DType::kE8m0, {blocks(out), blocks(in)});
  }
  // Pairs of E2M1 with a scale for each row's run of 32 inputs.
  void fp4(const std::string& name, int64_t out, int64_t in) {
    add(name + ".weight", DType::kI8, {out, in / 2});
    add(name + ".scale", DType::kE8m0, {out, in / kBlock});
  }

  void top() { bf16("embed.weight", {text_.vocab_size, text_.hidden_size}); }

  void head() {
    bf16("norm.weight", {text_.hidden_size});
    bf16("head.weight", {text_.vocab_size, text_.hidden_size});
  }

  void engram(const std::string& at, int place) {
    const int64_t rows = text_.engram_num_embeddings[static_cast<size_t>(place)];
    const int64_t dim = text_.engram_head_dim;
    const int64_t columns = (text_.engram_max_ngram_size - 1) * text_.engram_n_heads;
    add(at + "engram.embed.weight", DType::kE4m3, {rows, dim});
    add(at + "engram.embed.scale", DType::kE8m0, {rows, dim / kBlock});
    fp8(at + "engram.wkv", (text_.hc_mult + 1) * text_.hidden_size, columns * dim);
    bf16(at + "engram.q_weight", {text_.hc_mult, text_.hidden_size});
    bf16(at + "engram.k_weight", {text_.hc_mult, text_.hidden_size});
  }

  void hyper_connection(const std::string& at) {
    const int64_t n = text_.hc_mult;
    const int64_t mixes = n * (n + 2);
    for (const char* site : {"hc_attn", "hc_ffn"}) {
      f32(at + site + "_fn", {mixes, n * text_.hidden_size});
      f32(at + site + "_base", {mixes});
      f32(at + site + "_scale", {3});
    }
  }

  void attention(const std::string& at) {
    const int64_t heads = text_.num_attention_heads;
    const int64_t group_in = heads * text_.head_dim / text_.o_groups;
    bf16(at + "attn_norm.weight", {text_.hidden_size});
    f32(at + "attn.attn_sink", {heads});
    fp8(at + "attn.wq_a", text_.q_lora_rank, text_.hidden_size);
    bf16(at + "attn.q_norm.weight", {text_.q_lora_rank});
    fp8(at + "attn.wq_b", heads * text_.head_dim, text_.q_lora_rank);
    fp8(at + "attn.wkv", text_.head_dim, text_.hidden_size);
    bf16(at + "attn.kv_norm.weight", {text_.head_dim});
    fp8(at + "attn.wo_a", text_.o_groups * text_.o_lora_rank, group_in);
    fp8(at + "attn.wo_b", text_.hidden_size, text_.o_groups * text_.o_lora_rank);
  }

  void compressor(const std::string& at, int ratio) {
    bf16(at + "attn.compressor.wkv.weight", {text_.head_dim, text_.hidden_size});
    if (ratio > 1) bf16(at + "attn.compressor.wgate.weight", {text_.head_dim, text_.hidden_size});
    bf16(at + "attn.compressor.norm.weight", {text_.head_dim});
    bf16(at + "attn.indexer.wk.weight", {text_.index_head_dim, text_.head_dim});
    bf16(at + "attn.indexer.k_norm.weight", {text_.index_head_dim});
  }

  void indexer(const std::string& at) {
    fp8(at + "attn.indexer.wq_b", text_.index_n_heads * text_.index_head_dim, text_.q_lora_rank);
    bf16(at + "attn.indexer.weights_proj.weight", {text_.index_n_heads, text_.hidden_size});
  }

  void experts(const std::string& at, int64_t n_routed) {
    const int64_t width = text_.hidden_size;
    const int64_t inner = text_.moe_intermediate_size;
    bf16(at + "ffn_norm.weight", {width});
    bf16(at + "ffn.gate.weight", {n_routed, width});
    f32(at + "ffn.gate.bias", {n_routed});
    f32(at + "ffn.gate.bias_vl", {n_routed});
    for (int64_t e = 0; e < n_routed; ++e) {
      const std::string expert = at + "ffn.experts." + std::to_string(e) + ".";
      fp4(expert + "w1", inner, width);
      fp4(expert + "w2", width, inner);
      fp4(expert + "w3", inner, width);
    }
    fp8(at + "ffn.shared_experts.w1", inner, width);
    fp8(at + "ffn.shared_experts.w2", width, inner);
    fp8(at + "ffn.shared_experts.w3", inner, width);
  }

  void layer(const LayerPlan& plan) {
    const std::string at = "layers." + std::to_string(plan.layer) + ".";
    if (plan.engram >= 0) engram(at, plan.engram);
    hyper_connection(at);
    attention(at);
    if (plan.owns_kv()) compressor(at, plan.ratio);
    if (plan.owns_indexer()) indexer(at);
    experts(at, text_.n_routed_experts);
  }

  void drafter() {
    const int64_t n = text_.num_nextn_predict_layers;
    const int64_t width = text_.hidden_size;
    const auto taps = static_cast<int64_t>(text_.dspark_target_layer_ids.size());
    for (int64_t s = 0; s < n; ++s) {
      const std::string at = "mtp." + std::to_string(s) + ".";
      if (s == 0) {
        fp8(at + "main_proj", width, taps * width);
        bf16(at + "main_norm.weight", {width});
      }
      hyper_connection(at);
      attention(at);
      experts(at, text_.dspark_n_routed_experts);
      if (s + 1 < n) continue;
      const int64_t rank = text_.dspark_markov_rank;
      bf16(at + "norm.weight", {width});
      bf16(at + "markov_head.embed.weight", {text_.vocab_size, rank});
      bf16(at + "markov_head.head.weight", {text_.vocab_size, rank});
      bf16(at + "confidence_head.proj.weight", {1, width + rank});
    }
  }

  void vision() {
    if (vision_.num_hidden_layers == 0) return;
    const int64_t width = vision_.hidden_size;
    const int64_t patch = 3 * vision_.patch_size * vision_.patch_size;
    const int64_t cell = vision_.downsample_ratio * vision_.downsample_ratio * width;
    const int64_t out = text_.hidden_size;
    bf16("vision.patch_embed.proj.weight", {width, patch});
    bf16("vision.patch_embed.proj.bias", {width});
    for (int64_t i = 0; i < vision_.num_hidden_layers; ++i) {
      const std::string at = "vision.blocks." + std::to_string(i) + ".";
      bf16(at + "norm1.weight", {width});
      bf16(at + "attn.wqkv.weight", {3 * width, width});
      bf16(at + "attn.wqkv.bias", {3 * width});
      bf16(at + "attn.wo.weight", {width, width});
      bf16(at + "attn.wo.bias", {width});
      bf16(at + "norm2.weight", {width});
      bf16(at + "mlp.w1.weight", {2 * vision_.intermediate_size, width});
      bf16(at + "mlp.w2.weight", {width, vision_.intermediate_size});
    }
    bf16("vision.norm.weight", {width});
    bf16("aligner.w1.weight", {out, cell});
    bf16("aligner.w1.bias", {out});
    bf16("aligner.w2.weight", {out, out});
    bf16("aligner.w2.bias", {out});
    for (const char* name : {"image_start", "image_newline", "image_end"}) bf16(name, {out});
  }

  std::vector<ExpectedTensor> take() { return std::move(tensors_); }

 private:
  const TextConfig& text_;
  const VisionConfig& vision_;
  std::vector<ExpectedTensor> tensors_;
};

}  // namespace

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config) {
  Enumerator all(config);
  all.top();
  for (const LayerPlan& layer : make_plan(config).layers) all.layer(layer);
  all.head();
  all.drafter();
  all.vision();
  return all.take();
}

InventoryTotals& InventoryTotals::operator+=(const ExpectedTensor& tensor) {
  ++tensors;
  payload_bytes += tensor.bytes();
  if (tensor.dtype == DType::kI8) parameters += 2 * tensor.elements();
  if (tensor.dtype != DType::kI8 && tensor.dtype != DType::kE8m0) parameters += tensor.elements();
  return *this;
}

InventoryTotals inventory_totals(const std::vector<ExpectedTensor>& tensors) {
  InventoryTotals totals;
  for (const ExpectedTensor& tensor : tensors) totals += tensor;
  return totals;
}

}  // namespace fathom
