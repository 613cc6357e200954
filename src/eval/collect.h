#pragma once

// CollectingProbe: copies the intermediates that it is asked for, and overwrites others with given
// values, so that each layer can be started from stored inputs (teacher forcing).

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ops/probe.h"

namespace fathom {

// The elements of a tensor as numbers, row-major; exact for every dtype.
std::vector<double> to_numbers(const Tensor& t);

class CollectingProbe final : public Probe {
 public:
  using Wanted = std::function<bool(const std::string& name)>;
  explicit CollectingProbe(Wanted wanted) : wanted_(std::move(wanted)) {}

  // From now on `name` is overwritten with `values`, which outlives the probe; where they have not
  // as many bytes, nothing is written and the name is a misfit.
  void force(const std::string& name, const Tensor& values) { forced_[name] = values; }

  void value(const std::string& name, const Tensor& tensor) override;

  // The last value of each name, taken before it was overwritten.
  const std::map<std::string, std::vector<double>>& values() const { return values_; }
  void clear() { values_.clear(); }
  const std::vector<std::string>& misfits() const { return misfits_; }

 private:
  Wanted wanted_;
  std::map<std::string, Tensor> forced_;
  std::map<std::string, std::vector<double>> values_;
  std::vector<std::string> misfits_;
};

}  // namespace fathom
