#pragma once

// Compares a model with stored cases (tests/golden/README.md): layer by layer from stored inputs,
// and running freely.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/load.h"
#include "engine/runner.h"

namespace fathom {

struct WorstDeviation {
  std::string case_name;
  std::string tensor;
  double error = 0;
  double bound = 0;
};

struct CaseReport {
  int64_t cases = 0;
  int64_t passed = 0;
  int64_t failed = 0;
  int64_t ties = 0;       // stored decisions whose last kept and first dropped scores are equal
  int64_t compared = 0;   // tensors, or rows of them
  int64_t undecided = 0;  // differing decisions of free runs that rounding upstream may turn
  WorstDeviation worst;   // by error / bound
  std::vector<std::string> problems;  // one line each
};

struct CaseOptions {
  std::string cases;     // folder with *.safetensors
  std::string manifest;  // tolerances; may not exist: then ids are equal and values within 1e-3
  std::function<void(int64_t done, int64_t all)> progress = {};  // cases; may be null
};

// Runs every case. `path` is the model folder: index scores differ between cases, so the model is
// loaded once for each kind.
Result<CaseReport> check_cases(const std::string& path, Ops& ops, const CaseOptions& options);

}  // namespace fathom
