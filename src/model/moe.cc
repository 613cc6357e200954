// Mixture of experts of one layer. spec/backbone.md 3.10.

#include "model/model.h"

namespace fathom {

void Model::moe(const LayerPlan& plan, const Step& step, Ops& ops, Workspace& ws) const {
  const TextConfig& text = config_.text_config;
  const LayerWeights& w = weights_.layers[static_cast<size_t>(plan.layer)];
  const int64_t n_rows = step.n_rows();
  const Activation x = first(ws.x, n_rows);
  const Tensor ids = first(ws.expert_ids, n_rows);
  const Tensor weights = first(ws.expert_weights, n_rows);
  ops.show("moe.x", x.bf16);
  ops.route({.ids = ids,
             .weights = weights,
             .x = x,
             .gate = w.gate,
             .bias = w.bias,
             .bias_image = w.bias_image,
             .image_mask = step.has_images() ? first(ws.image_mask, n_rows) : Tensor{},
             .scale = static_cast<float>(text.routed_scaling_factor)});
  ops.experts({.y = first(ws.y, n_rows),
               .x = x,
               .ids = ids,
               .weights = weights,
               .experts = w.experts,
               .shared = w.shared,
               .swiglu_limit = static_cast<float>(text.swiglu_limit)});
}

}  // namespace fathom
