#pragma once

// Probes that replace the indexer's selection while a window of text is computed in one step, to
// tell what the selection is worth (docs/design/train.md):
//   recent: the last index_topk visible entries;
//   oracle: the index_topk entries with the most attention of the layer itself, summed over heads,
//           where the attention is over the window and all visible entries.

#include <map>
#include <string>
#include <vector>

#include "model/model.h"
#include "ops/probe.h"

namespace fathom {

enum class Selection : uint8_t { kIndexer, kOracle, kRecent };

class SelectionProbe final : public Probe {
 public:
  // The model outlives the probe. Rows of the step are positions 0, 1, ... of one sequence.
  SelectionProbe(const Model& model, const Checkpoint& checkpoint, Selection selection)
      : model_(model), checkpoint_(checkpoint), selection_(selection) {}

  void value(const std::string& name, const Tensor& tensor) override;

 private:
  struct Attention;

  void choose_recent(int ratio, const Tensor& topk) const;
  void choose_oracle(const LayerPlan& plan, const Tensor& topk) const;
  void add_entry_mass(const Attention& attention, int64_t row, std::vector<double>& mass) const;

  const Model& model_;
  const Checkpoint& checkpoint_;
  Selection selection_;
  std::vector<float> q_;                       // [N, H dh] of the layer at hand, not rotated
  std::vector<float> window_;                  // [N, dh] of the layer at hand
  std::map<int, std::vector<float>> entries_;  // by kv source: [E, dh]
};

}  // namespace fathom
