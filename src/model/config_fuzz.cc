// Any bytes are a config.json: it is refused in one line, or everything that is derived from a
// configuration can be derived, and writing and reading it again gives the same values.

#include <cstdint>
#include <cstdlib>

#include "base/check.h"
#include "model/engram_hash.h"
#include "model/inventory.h"
#include "model/layer_plan.h"

namespace {

using namespace fathom;

// Enumerating a million expert tensors teaches nothing.
bool is_small(const TextConfig& text) {
  return text.num_hidden_layers * text.n_routed_experts <= 4096 &&
         text.num_nextn_predict_layers * text.dspark_n_routed_experts <= 4096;
}

// Reading a decimal fraction may differ in the last bit from what was written; everything else is
// exact.
void copy_fractions(ModelConfig& to, const ModelConfig& from) {
  for (double TextConfig::*member :
       {&TextConfig::swiglu_limit, &TextConfig::rms_norm_eps, &TextConfig::attention_dropout,
        &TextConfig::initializer_range, &TextConfig::rope_theta, &TextConfig::routed_scaling_factor,
        &TextConfig::compress_rope_theta, &TextConfig::hc_eps}) {
    to.text_config.*member = from.text_config.*member;
  }
  for (double RopeScaling::*member :
       {&RopeScaling::factor, &RopeScaling::beta_fast, &RopeScaling::beta_slow}) {
    to.text_config.rope_scaling.*member = from.text_config.rope_scaling.*member;
  }
  to.vision_config.rope_theta = from.vision_config.rope_theta;
  to.vision_config.max_wh_ratio = from.vision_config.max_wh_ratio;
}

void check_config(const ModelConfig& config) {
  const ModelPlan plan = make_plan(config);
  FATHOM_CHECK(static_cast<int64_t>(plan.layers.size()) == config.text_config.num_hidden_layers);
  FATHOM_CHECK(!plan_text(plan).empty());
  const auto kv = KvSpec::make(plan.kv);
  FATHOM_CHECK(kv.has_value());
  if (is_small(config.text_config)) {
    for (const ExpectedTensor& tensor : expected_tensors(config)) FATHOM_CHECK(tensor.bytes() > 0);
  }
  for (const EngramHash& hash : make_engram_hashes(config.text_config)) {
    FATHOM_CHECK(hash.n_columns() > 0);
  }
  auto again = parse_config(config_to_json(config), "again");
  FATHOM_CHECK(again.has_value());
  copy_fractions(again->config, config);
  FATHOM_CHECK(again->config == config);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = parse_config({reinterpret_cast<const char*>(data), size}, "f");
  if (!file) {
    FATHOM_CHECK(file.error().message.find('\n') == std::string::npos);
    return 0;
  }
  for (const std::string& warning : file->warnings) {
    FATHOM_CHECK(warning.find('\n') == std::string::npos);
  }
  check_config(file->config);
  return 0;
}
