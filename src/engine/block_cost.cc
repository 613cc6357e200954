#include "engine/block_cost.h"

#include "model/layer_plan.h"

namespace fathom {
namespace {

// Of a product with a matrix of so many rows and columns.
double product(int64_t rows, int64_t columns) { return 2.0 * static_cast<double>(rows * columns); }

// Both sublayers: coefficients, mixing of n streams, widening.
double hyper_connections(const TextConfig& text) {
  const int64_t n = text.hc_mult;
  const int64_t d = text.hidden_size;
  return 2 * (product(n * (n + 2), n * d) + product(n * n, d) + 2 * product(n, d));
}

double attention(const TextConfig& text, const LayerPlan& layer) {
  const int64_t d = text.hidden_size;
  const int64_t q = text.num_attention_heads * text.head_dim;
  const int64_t n_entries = text.sliding_window + (layer.ratio > 0 ? text.index_topk : 0);
  const double projections = product(text.q_lora_rank + text.head_dim, d) +
                             product(text.q_lora_rank, q) + product(q, text.o_lora_rank) +
                             product(text.o_groups * text.o_lora_rank, d);
  return projections + 2 * product(q, n_entries);
}

// Entries of the layer's own caches: the weights of pooling are as wide as what they pool.
double compressor(const TextConfig& text, const LayerPlan& layer) {
  if (!layer.owns_kv()) return 0;
  return product(text.hidden_size, layer.ratio > 1 ? 2 * text.head_dim : text.head_dim);
}

double index_queries(const TextConfig& text) {
  return product(text.q_lora_rank, text.index_n_heads * text.index_head_dim) +
         product(text.hidden_size, text.index_n_heads);
}

double experts(const TextConfig& text) {
  const int64_t n = text.num_experts_per_tok + text.n_shared_experts;
  return product(text.hidden_size, text.n_routed_experts) +
         static_cast<double>(n) * 3 * product(text.hidden_size, text.moe_intermediate_size);
}

double engram(const TextConfig& text) {
  const int64_t columns = (text.engram_max_ngram_size - 1) * text.engram_n_heads;
  return product((text.hc_mult + 1) * text.hidden_size, columns * text.engram_head_dim);
}

}  // namespace

TokenCost encoder_cost(const ModelConfig& config) {
  const TextConfig& text = config.text_config;
  TokenCost cost;
  for (const LayerPlan& layer : make_plan(config).layers) {
    cost.first += compressor(text, layer);
    if (layer.decoder) continue;
    cost.first += hyper_connections(text) + attention(text, layer) + experts(text);
    if (layer.engram >= 0) cost.first += engram(text);
    if (!layer.owns_indexer()) continue;
    cost.first += index_queries(text);
    cost.slope += product(text.index_n_heads, text.index_head_dim) / layer.ratio;
  }
  return cost;
}

BlockCost block_cost(const TokenCost& token) {
  constexpr double kMiddle = (kBlockTokens - 1) / 2.0;
  return {.first = kBlockTokens * (token.first + kMiddle * token.slope),
          .slope = kBlockTokens * kBlockTokens * token.slope};
}

}  // namespace fathom
