#include "train/parity_engine.h"

#include <array>
#include <cstring>
#include <string_view>

#include "engine/load.h"
#include "engine/runner.h"
#include "ops/backends.h"
#include "text/engram_map.h"

namespace fathom::train {

namespace {

constexpr std::array kWanted = {"out",
                                "mid",
                                "hc_ffn.pre",
                                "engram.rows",
                                "engram.out",
                                "attn.x",
                                "attn.q",
                                "attn.kv",
                                "attn.c",
                                "attn.C",
                                "attn.o_raw",
                                "attn.out",
                                "attn.topk_ids",
                                "attn.pool_blocks",
                                "attn.index_scores",
                                "moe.ids",
                                "moe.scores",
                                "moe.out",
                                "attn.index_k",
                                "attn.index_q",
                                "attn.index_wproj"};

at::ScalarType type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return at::kFloat;
    case DType::kI32:
      return at::kInt;
    case DType::kI64:
      return at::kLong;
    default:
      FATHOM_CHECK(dtype == DType::kBf16);
      return at::kBFloat16;
  }
}

at::Tensor copy_of(const fathom::Tensor& shown) {
  FATHOM_CHECK(shown.is_dense());
  at::Tensor out =
      at::empty({shown.shape.data(), static_cast<size_t>(shown.rank)}, type_of(shown.dtype));
  std::memcpy(out.mutable_data_ptr(), shown.data, out.nbytes());
  return out;
}

class Recorder final : public Probe {
 public:
  explicit Recorder(std::map<std::string, at::Tensor>& values) : values_(values) {}

  void value(const std::string& name, const fathom::Tensor& tensor) override {
    for (const std::string_view wanted : kWanted) {
      if (name.size() == wanted.size() + 4 && name.ends_with(wanted)) {  // after "L03."
        values_[name] = copy_of(tensor);
      }
    }
  }

 private:
  std::map<std::string, at::Tensor>& values_;
};

}  // namespace

struct ParityEngine::Parts {
  LoadedModel loaded;
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Runner> runner;
};

ParityEngine::ParityEngine(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
ParityEngine::~ParityEngine() = default;

Result<std::unique_ptr<ParityEngine>> ParityEngine::open(const std::string& model, int64_t tokens) {
  auto parts = std::make_unique<Parts>();
  FATHOM_ASSIGN_OR_RETURN(parts->loaded, load_model(model, {.need_tokenizer = false}));
  FATHOM_ASSIGN_OR_RETURN(parts->ops, make_backend({.kind = BackendKind::kCpu}));
  FATHOM_ASSIGN_OR_RETURN(parts->runner, Runner::make(*parts->loaded.model, *parts->ops,
                                                      {.schedule = Schedule::kExact,
                                                       .context = tokens,
                                                       .max_rows = tokens,
                                                       .max_logit_rows = tokens}));
  return std::unique_ptr<ParityEngine>(new ParityEngine(std::move(parts)));
}

const ModelConfig& ParityEngine::config() const { return parts_->loaded.model->config(); }

Result<const Tokenizer*> ParityEngine::tokenizer() const {
  if (!parts_->loaded.tokenizer) {
    return not_found(parts_->loaded.path + ": wanted tokenizer.json, found none");
  }
  return &*parts_->loaded.tokenizer;
}

at::Tensor ParityEngine::engram_map() const {
  const TextConfig& text = config().text_config;
  if (text.engram_compressed_vocab_size == text.vocab_size) {
    return at::arange(text.vocab_size, at::kLong);
  }
  std::vector<int32_t> map = build_engram_map(*parts_->loaded.tokenizer).compressed;
  map.resize(static_cast<size_t>(text.vocab_size),
             map[static_cast<size_t>(text.engram_pad_token_id)]);
  return at::tensor(map, at::kInt).to(at::kLong);
}

Result<EngineTrace> ParityEngine::trace(std::span<const TokenId> ids) {
  Runner& runner = *parts_->runner;
  FATHOM_ASSIGN_OR_RETURN(Sequence sequence, runner.open());
  FATHOM_RETURN_IF_ERROR(runner.append(sequence, ids));
  EngineTrace out;
  Recorder recorder(out.values);
  parts_->ops->set_probe(&recorder);
  const StepItem item = {
      .sequence = &sequence, .n_rows = sequence.pending(), .want = WantLogits::kAll};
  const auto logits = runner.step({&item, 1});
  parts_->ops->set_probe(nullptr);
  runner.close(sequence);
  if (!logits) {
    return logits.error();
  }
  out.logits = copy_of(*logits);
  return out;
}

}  // namespace fathom::train
