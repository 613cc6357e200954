// What a parity report says, and the bar it is held to.

#include <algorithm>
#include <cstdio>

#include "train/parity.h"

namespace fathom::train {

namespace {

constexpr double kOutShare = 0.98, kCosine = 0.999, kTopShare = 0.99;

double share(int64_t part, int64_t whole) {
  return whole == 0 ? 1.0 : static_cast<double>(part) / static_cast<double>(whole);
}

double quantile(std::vector<double> values, double at) {
  if (values.empty()) {
    return 1;
  }
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(at * static_cast<double>(values.size() - 1))];
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) {
    sum += value;
  }
  return values.empty() ? 1 : sum / static_cast<double>(values.size());
}

template <typename... Args>
std::string line(const char* format, Args... args) {
  char buffer[256];
  std::snprintf(buffer, sizeof buffer, format, args...);
  return buffer;
}

// The streams after a layer.
ValueParity out_of(const ParityReport& r) {
  const auto found = r.values.find("out");
  return found == r.values.end() ? ValueParity{} : found->second;
}

std::string choice_line(const char* name, const ChoiceParity& c) {
  return line("  %-18s %8ld rows  %4ld differ (%.4f %%): %ld exact ties, margin %.1e\n", name,
              c.rows, c.differing, 100 * share(c.differing, c.rows), c.tied, c.margin);
}

std::string value_line(const char* name, const ValueParity& v) {
  return line("  %-18s %8ld values  %ld not equal (%.4f %%)  %.4f %% within 0.032  largest %.4f\n",
              name, v.elements, v.elements - v.equal, 100 * share(v.elements - v.equal, v.elements),
              100 * share(v.within, v.elements), v.largest);
}

std::string choice_json(const char* name, const ChoiceParity& c) {
  return line("\"%s\": {\"rows\": %ld, \"differing\": %ld, \"tied\": %ld, \"margin\": %.3e}, ",
              name, c.rows, c.differing, c.tied, c.margin);
}

}  // namespace

bool ParityReport::holds() const {
  const ValueParity v = out_of(*this);
  return passages > 0 && hashes.differing == 0 && experts.differing == 0 &&
         entries.differing == 0 && blocks.differing == 0 && v.elements > 0 &&
         share(v.within, v.elements) >= kOutShare && passage_cosine >= kCosine &&
         share(same_top, positions) >= kTopShare;
}

std::string parity_text(const ParityReport& r) {
  std::string out = line("%ld passages of %ld tokens\nlayer-forced\n", r.passages, r.tokens);
  out += choice_line("hash rows", r.hashes);
  out += choice_line("experts", r.experts);
  out += choice_line("index entries", r.entries);
  out += choice_line("candidate blocks", r.blocks);
  for (const auto& [name, v] : r.values) {
    out += value_line(name.c_str(), v);
  }
  out += "free-running\n" + value_line("logits", r.logits);
  out += line("  %-18s mean %.6f  1 %% quantile %.6f  smallest %.6f\n", "cosine, position",
              mean(r.cosines), quantile(r.cosines, 0.01), quantile(r.cosines, 0));
  out += line("  %-18s smallest %.6f\n", "cosine, passage", r.passage_cosine);
  out += line("  %-18s %ld of %ld positions (%.3f %%)\n", "same arg-max", r.same_top, r.positions,
              100 * share(r.same_top, r.positions));
  out += line("  %-18s %ld differ by more than 4 x the deviation below; lead %.3f at most\n",
              "arg-max, clearly", r.unexplained, r.lead);
  out += line("  %-18s %ld of %ld arg-max the same (%.3f %%), logits %.3f rms at most\n",
              "own sums in fp64", r.order_same_top, r.positions,
              100 * share(r.order_same_top, r.positions), r.order_deviation);
  return out + (r.holds() ? "parity holds\n" : "parity does NOT hold\n");
}

std::string parity_json(const ParityReport& r) {
  std::string out = line("{\"passages\": %ld, \"tokens\": %ld, ", r.passages, r.tokens);
  out += choice_json("hashes", r.hashes) + choice_json("experts", r.experts);
  out += choice_json("entries", r.entries) + choice_json("blocks", r.blocks);
  const ValueParity v = out_of(r);
  out += line("\"out_equal\": %.6f, \"out_within\": %.6f, \"out_largest\": %.6f, ",
              share(v.equal, v.elements), share(v.within, v.elements), v.largest);
  out += line("\"logits\": %ld, \"logits_equal\": %.6f, ", r.logits.elements,
              share(r.logits.equal, r.logits.elements));
  out += line("\"cosine_mean\": %.6f, \"cosine_smallest\": %.6f, \"cosine_passage\": %.6f, ",
              mean(r.cosines), quantile(r.cosines, 0), r.passage_cosine);
  out += line("\"order_same_argmax\": %.6f, \"order_deviation\": %.6f, \"unexplained\": %ld, ",
              share(r.order_same_top, r.positions), r.order_deviation, r.unexplained);
  return out + line("\"same_argmax\": %.6f, \"holds\": %s}\n", share(r.same_top, r.positions),
                    r.holds() ? "true" : "false");
}

}  // namespace fathom::train
