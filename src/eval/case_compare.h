#pragma once

// Compares what the engine showed with what one stored case says, and writes it into a report.

#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "eval/case_bounds.h"
#include "eval/case_check.h"

namespace fathom {

using Numbers = std::vector<double>;
using Shown = std::map<std::string, Numbers>;  // by name, as CollectingProbe has them

double largest_difference(const Numbers& a, const Numbers& b);  // of as many values

// One token of a case: row `stored` of `n_stored` in the file, row `shown` of `n_shown` in what the
// engine showed.
struct CaseRow {
  int64_t stored = 0;
  int64_t n_stored = 1;
  int64_t shown = 0;
  int64_t n_shown = 1;
};

class CaseComparison {
 public:
  // All of them outlive the object.
  CaseComparison(std::string name, const Checkpoint& file, const CaseBounds& bounds,
                 CaseReport& report)
      : name_(std::move(name)), file_(file), bounds_(bounds), report_(report) {}

  const std::string& name() const { return name_; }
  const Checkpoint& file() const { return file_; }
  const CaseBounds& bounds() const { return bounds_; }

  void note(const std::string& tensor, double error, double bound);
  void fail(const std::string& tensor, const std::string& text);
  void count_ties();

  // Every stored intermediate below `prefix`, where each layer was started from stored inputs.
  // `free_caches`: its caches were not, so that a code that flipped upstream may show.
  void layers(const std::string& prefix, const Shown& shown, bool free_caches);

  // Decisions, values and residual of one token below `prefix`, running freely. For tokens whose
  // logits agree to rounding: then no code can have flipped that mattered.
  void row(const std::string& prefix, const Shown& shown, const CaseRow& at);

  void values(const std::string& name, const Numbers& got, const Numbers& want, const Bound& bound);

 private:
  enum class Ids : uint8_t { kForced, kFree };

  void ids(const std::string& name, const Numbers& got, const Numbers& want, double gap);
  void id_rows(const StoredTensor& stored, const Numbers& got, Ids kind);
  void row_of_experts(const StoredTensor& stored, const Shown& shown, const CaseRow& at);
  void row_of_residual(const std::string& prefix, const Shown& shown, const CaseRow& at);
  Numbers row_values(const std::string& name, const Numbers& all, int64_t row, int64_t n_rows);
  double gap(const std::string& name, int64_t at) const;
  Numbers numbers(const std::string& name) const;
  bool has_size(const std::string& name, const Numbers& got, size_t wanted);

  std::string name_;
  const Checkpoint& file_;
  const CaseBounds& bounds_;
  CaseReport& report_;
};

}  // namespace fathom
