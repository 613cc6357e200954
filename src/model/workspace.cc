#include "model/workspace.h"

#include <algorithm>

#include "model/engram_hash.h"
#include "model/rope.h"

namespace fathom {
namespace {

Rope make_rope(Arena& arena, const TextConfig& text, int64_t n_rows) {
  const int64_t half = text.qk_rope_head_dim / 2;
  return {.inv_freq = arena.make(DType::kF32, {half}),
          .cos = arena.make(DType::kF32, {n_rows, half}),
          .sin = arena.make(DType::kF32, {n_rows, half})};
}

void write_floats(DeviceMemory& memory, const Tensor& to, const std::vector<float>& values) {
  FATHOM_CHECK(to.elements() == static_cast<int64_t>(values.size()));
  memory.write(to.data, values.data(), to.bytes());
}

void write_numbers(DeviceMemory& memory, const Tensor& to, const std::vector<int64_t>& values) {
  FATHOM_CHECK(to.elements() == static_cast<int64_t>(values.size()));
  memory.write(to.data, values.data(), to.bytes());
}

MhcCoefficients make_coefficients(Arena& arena, int64_t n_rows, int64_t n) {
  return {.pre = arena.make(DType::kF32, {n_rows, n}),
          .post = arena.make(DType::kF32, {n_rows, n}),
          .comb = arena.make(DType::kF32, {n_rows, n, n})};
}

}  // namespace

Workspace::Workspace(const ModelConfig& config, const WorkspaceLimits& limits, Arena arena)
    : limits_(limits), arena_(std::move(arena)) {
  const TextConfig& text = config.text_config;
  const int64_t n_rows = limits.max_rows;
  const int64_t hidden = text.hidden_size;
  const int64_t streams = text.hc_mult;
  const int64_t head_width = text.num_attention_heads * text.head_dim;
  const int64_t context = limits.context == 0 ? INT64_MAX : limits.context;
  const auto bf16 = [&](int64_t width) { return arena_.make(DType::kBf16, {n_rows, width}); };

  ids = arena_.make(DType::kI32, {n_rows});
  image_mask = arena_.make(DType::kU8, {n_rows});
  residual = arena_.make(DType::kBf16, {n_rows, streams, hidden});
  first_pre = arena_.make(DType::kF32, {n_rows, streams});
  hc_attn = make_coefficients(arena_, n_rows, streams);
  hc_ffn = make_coefficients(arena_, n_rows, streams);
  x = Activation::make(arena_, n_rows, hidden);
  y = bf16(hidden);
  wq_a = bf16(text.q_lora_rank);
  qr = Activation::make(arena_, n_rows, text.q_lora_rank);
  q = bf16(head_width);
  kv = bf16(text.head_dim);
  window_rows = {.payload = arena_.make(DType::kE4m3, {n_rows, text.head_dim}),
                 .scales = arena_.make(DType::kE8m0, {n_rows, text.head_dim / 32})};
  index_q = bf16(text.index_n_heads * text.index_head_dim);
  index_weights = bf16(text.index_n_heads);
  topk = arena_.make(DType::kI32, {n_rows, std::min(text.index_topk, context)});
  pool = arena_.make(DType::kI32, {n_rows, std::min(text.candidate_topk_blocks, context)});
  o = bf16(head_width);
  o_lora = Activation::make(arena_, n_rows, text.o_groups * text.o_lora_rank);
  expert_ids = arena_.make(DType::kI32, {n_rows, text.num_experts_per_tok});
  expert_weights = arena_.make(DType::kF32, {n_rows, text.num_experts_per_tok});
  if (!text.engram_layer_ids.empty()) {
    const int64_t columns = (text.engram_max_ngram_size - 1) * text.engram_n_heads;
    lookback = arena_.make(DType::kI32, {n_rows, text.engram_max_ngram_size});
    engram_rows = arena_.make(DType::kI64, {n_rows, columns});
    for (size_t i = 0; i < text.engram_layer_ids.size(); ++i) {
      engram_tables.push_back(
          {.primes = arena_.make(DType::kI64, {columns}),
           .offsets = arena_.make(DType::kI64, {columns}),
           .multipliers = arena_.make(DType::kI64, {text.engram_max_ngram_size})});
    }
    engram_lookup = Activation::make(arena_, n_rows, columns * text.engram_head_dim);
    engram_kv = bf16((streams + 1) * hidden);
  }
  rope_plain = make_rope(arena_, text, n_rows);
  rope_yarn = make_rope(arena_, text, n_rows);
  head_x = Activation::make(arena_, limits.max_logit_rows, hidden);
  logits = arena_.make(DType::kF32, {limits.max_logit_rows, text.vocab_size});
}

void Workspace::write_constants(const ModelConfig& config, DeviceMemory& memory) {
  const TextConfig& text = config.text_config;
  std::vector<float> pre(static_cast<size_t>(first_pre.elements()));
  for (size_t i = 0; i < pre.size(); i += static_cast<size_t>(text.hc_mult)) pre[i] = 1.0f;
  write_floats(memory, first_pre, pre);
  write_floats(memory, rope_plain.inv_freq, rope_frequencies(text, false));
  write_floats(memory, rope_yarn.inv_freq, rope_frequencies(text, true));
  const std::vector<EngramHash> hashes = make_engram_hashes(text);
  for (size_t i = 0; i < hashes.size(); ++i) {
    write_numbers(memory, engram_tables[i].primes, hashes[i].primes);
    write_numbers(memory, engram_tables[i].offsets, hashes[i].offsets);
    write_numbers(memory, engram_tables[i].multipliers, hashes[i].multipliers);
  }
}

int64_t Workspace::bytes(const ModelConfig& config, const WorkspaceLimits& limits) {
  return Workspace(config, limits, Arena::measuring()).arena_.peak();
}

Result<Workspace> Workspace::make(const ModelConfig& config, const WorkspaceLimits& limits,
                                  DeviceMemory& memory) {
  FATHOM_ASSIGN_OR_RETURN(Buffer buffer, memory.allocate(bytes(config, limits), "step workspace"));
  Workspace workspace(config, limits, Arena(std::move(buffer)));
  workspace.write_constants(config, memory);
  return workspace;
}

}  // namespace fathom
