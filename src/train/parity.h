#pragma once

// Parity: the engine and the differentiable definition on the same checkpoint and the same text.
//
//   layer-forced: each layer of the definition (exact numerics) starts from what the engine had
//     before that layer: streams, pre-mix, entries and index keys of its source, selection and
//     candidate pool of the layers it follows. Decisions are compared as sets, `out` by element.
//   free-running: both from the tokens to the logits.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace fathom::train {

// Decisions of one kind.
struct ChoiceParity {
  int64_t rows = 0;
  int64_t differing = 0;  // rows that chose another set
  int64_t tied = 0;       // of these: by scores that are equal in the engine
  // Largest distance of two exchanged members in the engine's own scores, over the row's largest
  // score: how far from a tie the worst row was.
  double margin = 0;

  ChoiceParity& operator+=(const ChoiceParity& other);
};

// Values of one name.
struct ValueParity {
  int64_t elements = 0, equal = 0, within = 0;  // within 0.032
  double largest = 0;                           // difference
};

struct ParityReport {
  int64_t passages = 0, tokens = 0;
  ChoiceParity hashes, experts, entries, blocks;
  std::map<std::string, ValueParity> values;  // layer-forced, by name, over all layers
  int64_t positions = 0, same_top = 0;        // free-running
  ValueParity logits;
  std::vector<double> cosines;  // of logits, one a position
  double passage_cosine = 1;    // the smallest of one passage's logits together
  // What another order of the definition's own sums does, as the measure of what is open.
  int64_t order_same_top = 0;  // positions where the definition keeps its arg-max
  double order_deviation = 0;  // rms of its logits' change, the largest of a passage
  // Where arg-max differs: how much the engine preferred its own choice, at most, and at how many
  // positions that is more than four times the passage's deviation (docs/design.md, section 7).
  double lead = 0;
  int64_t unexplained = 0;

  // The bar: the same decisions in every row; `out` within 0.032 on 98 % of the elements; every
  // passage's cosine 0.999; the same arg-max on 99 % of the positions.
  bool holds() const;
};

struct ParityOptions {
  std::string model;                      // folder of a checkpoint with its tokenizer
  std::string text;                       // folder of held-out *.txt.gz
  int64_t passages = 32, tokens = 512;    // drawn evenly over all sets, from all of each text
  std::vector<std::vector<int32_t>> ids;  // where not empty: these passages instead, of any length
  std::function<void(const ParityReport&)> progress;  // after each passage; may be empty
};

Result<ParityReport> measure_parity(const ParityOptions& options);

// A table with counts, extremes and the verdict.
std::string parity_text(const ParityReport& report);
// The same as one JSON object.
std::string parity_json(const ParityReport& report);

}  // namespace fathom::train
