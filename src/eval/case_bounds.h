#pragma once

// Tolerances of stored cases, from manifest.json as tests/golden/README.md "How to compare" says.

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fathom {

// How far one tensor may be from its stored values: an element by the largest of the four.
struct Bound {
  double absolute = 0;
  double relative = 0;    // of the largest stored magnitude
  double ulps = 0;        // bf16 units in the last place of the stored element
  bool one_step = false;  // a whole step of a four-bit quantiser
  double fraction = 1;    // of elements that may differ at all
};

class CaseBounds {
 public:
  // A missing file gives the defaults. kInvalid where it records no case, or a deviation that is
  // none: not a number, negative, or so large that every value would pass.
  static Result<CaseBounds> read(const std::string& path);

  // Final logits of a case, running freely. `part` is the length in `prefill` and `replay`.
  double logits(const std::string& case_name, const std::string& part = "") const;
  // The root mean square of the same, for prompts in which codes flip.
  double logits_rms(const std::string& case_name) const;

  // An intermediate of a layer that was started from stored inputs; `name` without the layer.
  // Where nothing is recorded, what other orders of summation may do in any model.
  Bound layer_forced(std::string_view name, bool is_float32) const;
  // The same where the caches hold what earlier rows left there running freely, so that a flipped
  // code upstream shows: as far as the recorded free runs went.
  Bound free_running(std::string_view name) const;
  // A value of a row whose logits agree to rounding.
  static Bound agreeing_row(std::string_view name);

 private:
  struct Deviation {
    double max_abs = 0;
    double fraction = 0;
  };

  double recorded(const std::map<std::string, double>& of, const std::string& case_name,
                  const std::string& part) const;

  // By "case" or "case/part": the largest recorded deviation.
  std::map<std::string, double> logits_;
  std::map<std::string, double> logits_rms_;
  using Deviations = std::map<std::string, Deviation, std::less<>>;
  Deviations layer_forced_;
  Deviations free_running_;
};

}  // namespace fathom
