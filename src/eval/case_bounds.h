#pragma once

// Tolerances of stored cases, from manifest.json as tests/golden/README.md "How to compare" says.

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fathom {

// How far one tensor may be from its stored values.
struct Bound {
  double absolute = 1e-3;  // of any element, beside `ulps`
  double ulps = 0;         // bf16 units in the last place of the stored element
  double fraction = 1;     // of elements that may differ at all
};

class CaseBounds {
 public:
  // A missing file gives the defaults.
  static Result<CaseBounds> read(const std::string& path);

  // Final logits of a case, running freely. `part` is the length in `prefill` and `replay`.
  double logits(const std::string& case_name, const std::string& part = "") const;
  // An intermediate of a layer that was started from stored inputs; `name` without the layer.
  Bound layer_forced(std::string_view name, bool is_float32) const;
  // The same where the caches hold what earlier rows left there running freely, so that a flipped
  // code upstream shows: as far as the recorded free runs went.
  Bound free_running(std::string_view name) const;

 private:
  struct Deviation {
    double max_abs = 0;
    double fraction = 0;
  };

  std::map<std::string, double> logits_;  // "case" or "case/part": largest recorded deviation
  using Deviations = std::map<std::string, Deviation, std::less<>>;
  Deviations layer_forced_;
  Deviations free_running_;
};

}  // namespace fathom
