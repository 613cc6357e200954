#include "model/synth.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <optional>

#include "base/check.h"
#include "checkpoint/writer.h"
#include "model/inventory.h"
#include "tensor/codecs.h"

namespace fathom {
namespace {

constexpr int64_t kWordBytes = 8;
constexpr int64_t kPieceBytes = 1 << 20;

// E4M3 codes keep their sign, mantissa and low three exponent bits: magnitudes up to 1.875 with
// subnormals and zeros among them, never NaN.
constexpr uint64_t kE4m3Mask = 0xbfbfbfbfbfbfbfbfull;

// One output of SplitMix64 at any position of its sequence.
uint64_t draw(uint64_t key, uint64_t position) {
  uint64_t z = key + (position + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

uint64_t key_of(uint64_t seed, const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return draw(hash, seed);
}

// What a name asks for: the spread is divided by sqrt(inputs) where a matrix product follows.
struct Recipe {
  const char* suffix;
  double mean;
  double spread;
  bool per_input;
};

// The first match counts. Drawn after the tiny golden model's weights.
constexpr Recipe kRecipes[] = {
    {"engram.embed.weight", 0, 1.0, false},
    {"engram.q_weight", 1.09, 0.3, false},
    {"engram.k_weight", 1.09, 0.3, false},
    {"markov_head.embed.weight", 0, 1.0, false},
    {"markov_head.head.weight", 0, 0.5, true},
    {"confidence_head.proj.weight", 0, 1.0, true},
    {"embed.weight", 0, 1.03, false},
    {"head.weight", 0, 2.5, true},
    {"norm.weight", 1.0, 0.2, false},
    {"norm1.weight", 1.0, 0.2, false},
    {"norm2.weight", 1.0, 0.2, false},
    {"hc_attn_fn", 0, 0.6, true},
    {"hc_ffn_fn", 0, 0.6, true},
    {"_base", 0, 0.6, false},
    {"_scale", 0.7, 0.15, false},
    {"attn_sink", 0, 1.1, false},
    {"ffn.gate.weight", 0, 2.5, true},
    {"ffn.gate.bias", 0, 0.15, false},
    {"ffn.gate.bias_vl", 0, 0.55, false},
    {"wgate.weight", 0, 1.3, true},
    {"wo_a.weight", 0, 1.3, true},
    {"wo_b.weight", 0, 0.11, true},
    {"shared_experts.w2.weight", 0, 0.08, true},
    {"mlp.w2.weight", 0, 0.2, true},
    {"aligner.w2.weight", 0, 1.0, true},
    {"w2.weight", 0, 0.06, true},
    {"w1.weight", 0, 1.3, true},
    {"w3.weight", 0, 1.3, true},
    {"wo.weight", 0, 0.2, true},
    {".bias", 0, 0.02, false},
    {"image_start", 0, 1.0, false},
    {"image_newline", 0, 1.0, false},
    {"image_end", 0, 1.0, false},
    {".weight", 0, 1.0, true},
};

const Recipe& recipe_of(const std::string& name) {
  const auto found = std::find_if(std::begin(kRecipes), std::end(kRecipes),
                                  [&](const Recipe& r) { return name.ends_with(r.suffix); });
  FATHOM_CHECK(found != std::end(kRecipes));
  return *found;
}

int64_t inputs_of(const ExpectedTensor& tensor) {
  const int64_t stored = tensor.shape.back();
  return tensor.dtype == DType::kI8 ? 2 * stored : stored;
}

// Root mean square of the codes before their scales, over all draws.
double code_rms(DType dtype) {
  double sum = 0;
  if (dtype == DType::kI8) {
    for (int code = 0; code < 16; ++code) {
      const double value = e2m1_to_float(static_cast<uint8_t>(code));
      sum += value * value;
    }
    return std::sqrt(sum / 16);
  }
  for (int code = 0; code < 256; ++code) {
    const double value = e4m3_to_float(static_cast<uint8_t>(code & (kE4m3Mask & 0xff)));
    sum += value * value;
  }
  return std::sqrt(sum / 256);
}

// A scale byte is base, spread by -1, 0, 0 or +1, and one more in `more` of 64 draws: the mean of
// its square is exactly what the rule asks for.
struct ScaleDraw {
  int base = 127;
  unsigned more = 0;

  explicit ScaleDraw(double scale_rms) {
    constexpr double kSpreadSquare = 1.5625;  // mean of 1/4, 1, 1, 4
    const double square = scale_rms * scale_rms / kSpreadSquare;
    int above = 0;  // square is in [2^(above - 1), 2^above)
    std::frexp(square, &above);
    const int exponent = (above - 1) >> 1;
    base = std::clamp(127 + exponent, 2, 250);
    const double share = (square / std::ldexp(1.0, 2 * (base - 127)) - 1) / 3;
    more = static_cast<unsigned>(std::clamp(std::lround(64 * share), 0l, 64l));
  }
  uint8_t operator()(unsigned byte) const {
    const unsigned low = byte & 3;
    const int spread = low == 0 ? -1 : low == 3 ? 1 : 0;
    return static_cast<uint8_t>(base + spread + ((byte >> 2) < more ? 1 : 0));
  }
};

}  // namespace

RandomWeights::RandomWeights(const ModelConfig& config, uint64_t seed)
    : tensors_(expected_tensors(config)) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const ExpectedTensor& tensor = tensors_[i];
    Rule rule = {.key = key_of(seed, tensor.name)};
    const bool scales = tensor.dtype == DType::kE8m0;
    // A scale stands right behind its matrix and carries the spread of both.
    FATHOM_CHECK(!scales || i > 0);
    const ExpectedTensor& matrix = scales ? tensors_[i - 1] : tensor;
    const Recipe& recipe = recipe_of(matrix.name);
    rule.mean = recipe.mean;
    rule.rms = recipe.spread;
    if (recipe.per_input) rule.rms /= std::sqrt(static_cast<double>(inputs_of(matrix)));
    if (scales) rule.rms /= code_rms(matrix.dtype);
    if (tensor.name.ends_with("_base")) rule.hc_mult = config.text_config.hc_mult;
    rules_.push_back(rule);
  }
}

namespace {

void fill_bf16(std::span<uint64_t> words, uint64_t key, uint64_t first, float mean, float step) {
  for (size_t i = 0; i < words.size(); ++i) {
    const uint64_t word = draw(key, first + i);
    uint64_t packed = 0;
    for (int lane = 0; lane < 4; ++lane) {
      const auto signed16 = static_cast<int16_t>(word >> (16 * lane));
      const float value = mean + step * (static_cast<float>(signed16) + 0.5f);
      packed |= uint64_t{float_to_bf16(value)} << (16 * lane);
    }
    words[i] = packed;
  }
}

void fill_f32(std::span<uint64_t> words, uint64_t key, uint64_t first, float mean, float step) {
  for (size_t i = 0; i < words.size(); ++i) {
    const uint64_t word = draw(key, first + i);
    float values[2];
    for (int lane = 0; lane < 2; ++lane) {
      const auto signed16 = static_cast<int16_t>(word >> (32 * lane));
      values[lane] = mean + step * (static_cast<float>(signed16) + 0.5f);
    }
    std::memcpy(&words[i], values, sizeof(values));
  }
}

void fill_scales(std::span<uint64_t> words, uint64_t key, uint64_t first, double rms) {
  const ScaleDraw scale(rms);
  for (size_t i = 0; i < words.size(); ++i) {
    const uint64_t word = draw(key, first + i);
    uint64_t packed = 0;
    for (int lane = 0; lane < 8; ++lane) {
      packed |= uint64_t{scale(static_cast<unsigned>(word >> (8 * lane)) & 0xff)} << (8 * lane);
    }
    words[i] = packed;
  }
}

void fill_codes(std::span<uint64_t> words, uint64_t key, uint64_t first, uint64_t mask) {
  for (size_t i = 0; i < words.size(); ++i) words[i] = draw(key, first + i) & mask;
}

// Coefficients of a hyper-connection lean on their own stream: pre low, the diagonal of comb high.
float base_lean(int64_t element, int64_t n) {
  if (element < n) return -0.9f;
  if (element < 2 * n) return 0.4f;
  return (element - 2 * n) % (n + 1) == 0 ? 1.8f : 0.0f;
}

void lean_base(std::span<std::byte> out, int64_t offset, int64_t hc_mult) {
  constexpr auto kWidth = static_cast<int64_t>(sizeof(float));
  for (int64_t at = 0; at < static_cast<int64_t>(out.size()); at += kWidth) {
    float value;
    std::memcpy(&value, out.data() + at, sizeof(value));
    value += base_lean((offset + at) / kWidth, hc_mult);
    std::memcpy(out.data() + at, &value, sizeof(value));
  }
}

}  // namespace

void RandomWeights::fill(std::span<std::byte> out, size_t tensor, int64_t offset) const {
  FATHOM_CHECK(offset % kWordBytes == 0);
  const Rule& rule = rules_[tensor];
  const auto first = static_cast<uint64_t>(offset / kWordBytes);
  std::vector<uint64_t> words((out.size() + kWordBytes - 1) / kWordBytes);
  // A uniform draw has sqrt(3) times its root mean square as largest value.
  const auto mean = static_cast<float>(rule.mean);
  const auto step = static_cast<float>(rule.rms * std::sqrt(3.0) / 32768.0);
  switch (tensors_[tensor].dtype) {
    case DType::kBf16:
      fill_bf16(words, rule.key, first, mean, step);
      break;
    case DType::kF32:
      fill_f32(words, rule.key, first, mean, step);
      break;
    case DType::kE8m0:
      fill_scales(words, rule.key, first, rule.rms);
      break;
    case DType::kE4m3:
      fill_codes(words, rule.key, first, kE4m3Mask);
      break;
    default:
      fill_codes(words, rule.key, first, ~uint64_t{0});
      break;
  }
  std::memcpy(out.data(), words.data(), out.size());
  if (rule.hc_mult > 0) lean_base(out, offset, rule.hc_mult);
}

namespace {

// A run of bytes of one tensor.
struct Piece {
  size_t tensor = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
};

std::vector<Piece> cut(std::span<const ExpectedTensor> tensors) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t bytes = tensors[i].bytes();
    for (int64_t at = 0; at < bytes; at += kPieceBytes) {
      pieces.push_back({i, at, std::min(kPieceBytes, bytes - at)});
    }
  }
  return pieces;
}

// The first failure of any thread.
class FirstError {
 public:
  void note(const Result<void>& result) {
    if (result) return;
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = result.error();
  }
  bool any() {
    const std::lock_guard lock(mutex_);
    return error_.has_value();
  }
  Result<void> result() { return error_ ? Result<void>(*error_) : Result<void>(); }

 private:
  std::mutex mutex_;
  std::optional<Error> error_;
};

}  // namespace

Result<void> write_random_model(const std::string& folder, const ModelConfig& config,
                                const SynthOptions& options, ThreadPool& pool) {
  const RandomWeights weights(config, options.seed);
  const std::vector<ExpectedTensor> tensors(weights.tensors().begin(), weights.tensors().end());
  const int64_t total = inventory_totals(tensors).payload_bytes;
  FATHOM_ASSIGN_OR_RETURN(CheckpointWriter writer,
                          CheckpointWriter::create(folder, tensors, options.max_shard_bytes));
  const std::vector<Piece> pieces = cut(tensors);
  constexpr int64_t kBatch = 64;  // pieces between two calls of progress
  FirstError first_error;
  int64_t done = 0;
  for (int64_t at = 0; at < static_cast<int64_t>(pieces.size()) && !first_error.any();
       at += kBatch) {
    const std::span batch = std::span(pieces)
                                .subspan(static_cast<size_t>(at))
                                .first(static_cast<size_t>(std::min<int64_t>(
                                    kBatch, static_cast<int64_t>(pieces.size()) - at)));
    pool.parallel_for(static_cast<int64_t>(batch.size()), 1, [&](int64_t begin, int64_t end) {
      std::vector<std::byte> buffer(kPieceBytes);
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        const std::span bytes = std::span(buffer).first(static_cast<size_t>(batch[i].bytes));
        weights.fill(bytes, batch[i].tensor, batch[i].offset);
        first_error.note(writer.write(batch[i].tensor, batch[i].offset, bytes));
      }
    });
    for (const Piece& piece : batch) done += piece.bytes;
    if (options.progress && !options.progress(done, total)) {
      return Error{ErrorCode::kCancelled, folder + ": stopped; what was written is removed"};
    }
  }
  FATHOM_RETURN_IF_ERROR(first_error.result());
  FATHOM_RETURN_IF_ERROR(writer.add_file("config.json", config_to_json(config)));
  return writer.finish(options.accept);
}

}  // namespace fathom
