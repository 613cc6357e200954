#include "train/optim.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

namespace fathom::train {

using at::Tensor;

Tensor newton_schulz(const Tensor& batch) {
  const bool tall = batch.size(1) > batch.size(2);
  const auto type = batch.is_cuda() ? at::kBFloat16 : batch.scalar_type();
  Tensor x = tall ? batch.transpose(1, 2) : batch;
  x = (x / (x.square().sum({1, 2}, true).sqrt() + 1e-12)).to(type);
  for (int i = 0; i < 5; ++i) {
    const Tensor a = at::bmm(x, x.transpose(1, 2));
    const Tensor b = at::baddbmm(a, a, a, -4.7750 / 2.0315, 1.0) * 2.0315;
    x = at::baddbmm(x, b, x, 3.4445, 1.0);
  }
  x = x.to(batch.scalar_type());
  return tall ? x.transpose(1, 2) : x;
}

Optimiser::Optimiser(Params& params, const OptimSettings& settings)
    : params_(params), settings_(settings) {
  first_ = at::zeros_like(params.master());
  second_ = at::zeros_like(params.master());
}

void Optimiser::adam(Group group, const Tensor& grad, double lr, double decay) {
  const auto [begin, end] = params_.range(group);
  if (begin == end) {
    return;
  }
  const auto part = [&](const Tensor& flat) { return flat.narrow(0, begin, end - begin); };
  const Tensor g = part(grad);
  Tensor m = part(first_);
  Tensor v = part(second_);
  Tensor w = part(params_.master());
  m.mul_(settings_.beta1).add_(g, 1 - settings_.beta1);
  v.mul_(settings_.beta2).addcmul_(g, g, 1 - settings_.beta2);
  const double c1 = 1 - std::pow(settings_.beta1, static_cast<double>(updates_));
  const double c2 = 1 - std::pow(settings_.beta2, static_cast<double>(updates_));
  w.mul_(1 - lr * decay);
  w.addcdiv_(m, (v / c2).sqrt_().add_(settings_.eps), -lr / c1);
}

void Optimiser::muon(const Tensor& grad, double lr) {
  const auto [begin, end] = params_.range(Group::kMuon);
  const auto part = [&](const Tensor& flat) { return flat.narrow(0, begin, end - begin); };
  const double momentum = settings_.muon_momentum;
  part(first_).mul_(momentum).add_(part(grad));
  const Tensor update = part(grad) + part(first_) * momentum;
  part(params_.master()).mul_(1 - lr * settings_.muon_decay);
  const auto& specs = params_.specs();
  for (size_t i = 0; i < specs.size();) {
    const ParamSpec& spec = specs[i];
    size_t last = i;
    // Layers of one kind are neighbours in the flat order, without gaps if sizes are multiples.
    while (last + 1 < specs.size() && specs[last + 1].name == spec.name &&
           specs[last + 1].shape == spec.shape &&
           specs[last + 1].offset == specs[last].offset + specs[last].count) {
      ++last;
    }
    if (spec.group == Group::kMuon) {
      const int64_t count = specs[last].offset + specs[last].count - spec.offset;
      const int64_t columns = spec.shape.back();
      const auto shape = std::vector<int64_t>{-1, spec.rows, columns};
      const Tensor turned = newton_schulz(update.narrow(0, spec.offset - begin, count).view(shape));
      const double size = 0.2 * std::sqrt(static_cast<double>(std::max(spec.rows, columns)));
      params_.master().narrow(0, spec.offset, count).view(shape).add_(turned, -lr * size);
    }
    i = last + 1;
  }
}

StepReport Optimiser::step(double factor, bool indexer_only) {
  const at::NoGradGuard no_grad;
  StepReport report;
  Tensor grad = params_.gradient();
  const auto [begin, end] = params_.range(Group::kIndexer);
  Tensor indexer = grad.narrow(0, begin, end - begin);
  const Tensor all = grad.square().sum();
  const Tensor own = indexer.square().sum();
  const Tensor both = at::stack({all, own}).to(at::kCPU).to(at::kDouble);
  const double total = both[0].item<double>();
  const double part = both[1].item<double>();
  report.norm = std::sqrt(std::max(0.0, total - part));
  report.indexer_norm = std::sqrt(part);
  if (!std::isfinite(total)) {
    report.skipped = true;
    return report;
  }
  ++updates_;
  const double scale = std::min(1.0, settings_.clip / (report.norm + 1e-12));
  const double own_scale = std::min(1.0, settings_.clip / (report.indexer_norm + 1e-12));
  grad.narrow(0, 0, begin).mul_(scale);
  grad.narrow(0, end, grad.size(0) - end).mul_(scale);
  indexer.mul_(own_scale);
  adam(Group::kIndexer, grad, factor * settings_.indexer_lr, 0);
  if (indexer_only) return report;
  muon(grad, factor * settings_.muon_lr);
  adam(Group::kEmbed, grad, factor * settings_.embed_lr, settings_.embed_decay);
  adam(Group::kTable, grad, factor * settings_.table_lr, 0);
  adam(Group::kSmall, grad, factor * settings_.small_lr, 0);
  adam(Group::kSmallF32, grad, factor * settings_.small_lr, 0);
  return report;
}

}  // namespace fathom::train
