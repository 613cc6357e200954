#pragma once

// Model: the text backbone, written once in the vocabulary of Ops. Const after load; everything
// that changes is an argument. It knows tokens, positions and packed state, and never a request, a
// clock or a file. Source: spec/backbone.md sections 3 and 4; schedules are composed by engine/.
//
//   Boundary b = model.encode(step, ops, ws);          // layers of the encoder
//   model.project_decoder_kv(step, b, ops, ws);        // the decoder's global entries of every row
//   Tensor logits = model.decode(step, b, rows, ops, ws);
//
// `decode` may be given fewer rows than were encoded (the last window of a prompt): then the engine
// gathers their part of the boundary and describes them by a step of their own.

#include <span>
#include <vector>

#include "model/step.h"
#include "model/weights.h"
#include "model/workspace.h"
#include "ops/ops.h"

namespace fathom {

// What enters the first decoder layer.
struct Boundary {
  Tensor residual;  // [N, n, D] bf16, expanded
  Tensor pre;       // [N, n] f32, the incoming mix

  Boundary rows(int64_t begin, int64_t end) const {
    return {.residual = residual.rows(begin, end), .pre = pre.rows(begin, end)};
  }
};

struct ModelOptions {
  IndexScores index_scores = IndexScores::kF32;
  // Where the words find the weights: that of the backend which will run the model. Null: in the
  // checkpoint's own mapping.
  DeviceMemory* memory = nullptr;
  WeightMemory::Progress progress;  // of the copy into `memory`
};

class Model {
 public:
  // token_map [vocab_size]: the canonical id of each token for Engram; may be empty where the
  // configuration's compressed vocabulary is the vocabulary. The checkpoint and the memory outlive
  // the model.
  static Result<Model> make(const ModelConfig& config, const Checkpoint& checkpoint,
                            std::vector<int32_t> token_map, const ModelOptions& options);

  const ModelConfig& config() const { return config_; }
  const ModelPlan& plan() const { return plan_; }
  const KvSpec& kv_spec() const { return kv_spec_; }
  const Weights& weights() const { return weights_; }
  // The canonical id of each token, for Engram; empty where there is none.
  std::span<const int32_t> token_map() const { return token_map_; }
  bool has_decoder() const { return plan_.n_encoder_layers < n_layers(); }

  // Tells the backend the weights that it may keep in an order of its own (Ops::prepare). Once for
  // each backend, before its first step.
  Result<void> prepare(Ops& ops) const;

  // Runs the encoder over the step's rows and commits their windows, entries and remainders. The
  // result lies in the workspace.
  Boundary encode(const Step& step, Ops& ops, Workspace& ws) const;

  // Writes the decoder's global entries of the step's rows: all that a prompt row owes the decoder.
  void project_decoder_kv(const Step& step, const Boundary& boundary, Ops& ops,
                          Workspace& ws) const;

  // Runs the decoder over the step's rows, whose entries were projected before; commits windows.
  // Returns logits [logit_rows, V] f32 of the chosen rows, in the workspace. May overwrite
  // boundary.
  Tensor decode(const Step& step, const Boundary& boundary, std::span<const int64_t> logit_rows,
                Ops& ops, Workspace& ws) const;

 private:
  struct Stream;  // the residual and what is still to be added to it

  Model(ModelConfig config, KvSpec kv_spec, WeightMemory memory, std::vector<int32_t> token_map,
        const ModelOptions& options);

  int n_layers() const { return static_cast<int>(plan_.layers.size()); }
  void prepare(const Step& step, Ops& ops, Workspace& ws) const;
  void run_layer(int layer, Stream& stream, const Step& step, Ops& ops, Workspace& ws) const;
  void engram(const LayerPlan& plan, Stream& stream, const Step& step, Ops& ops,
              Workspace& ws) const;
  void attention(const LayerPlan& plan, const Step& step, Ops& ops, Workspace& ws) const;
  void select(const LayerPlan& plan, const Step& step, Ops& ops, Workspace& ws) const;
  void compress(const LayerPlan& plan, const Step& step, Ops& ops, Workspace& ws) const;
  void moe(const LayerPlan& plan, const Step& step, Ops& ops, Workspace& ws) const;
  void expand(Stream& stream, Ops& ops) const;
  void site(Stream& stream, const MhcSite* predict, Tensor norm, Ops& ops, Workspace& ws) const;
  void write_lookback(const Step& step, Ops& ops, Workspace& ws) const;

  ModelConfig config_;
  ModelPlan plan_;
  KvSpec kv_spec_;
  Weights weights_;
  std::vector<int32_t> token_map_;
  ModelOptions options_;
};

}  // namespace fathom
