#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>

#include "apps/common.h"
#include "apps/plan_flag.h"
#include "apps/verb.h"
#include "checkpoint/checkpoint.h"
#include "model/inventory.h"
#include "model/layer_plan.h"
#include "model/plans.h"
#include "text/json_text.h"

namespace fathom {
namespace {

// 1234567 -> "1,234,567"
std::string grouped(int64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return digits;
}

boost::json::value id_or_null(int id) {
  return id < 0 ? boost::json::value(nullptr) : boost::json::value(id);
}

boost::json::value pool_text(PoolUse pool) {
  return pool == PoolUse::kNone ? boost::json::value(nullptr) : boost::json::value(pool_name(pool));
}

// 890, not 890.0.
boost::json::value number(double value) {
  if (const auto whole = whole_number(value)) return *whole;
  return value;
}

class InspectVerb final : public Verb {
 public:
  const char* name() const override { return "inspect"; }
  const char* help() const override { return "What is in a model"; }

  void add_options(CLI::App& app) override {
    CLI::Option* model =
        app.add_option("MODEL,-m,--model", model_, "Model folder (default: the model in models/)");
    app.add_option("--plan", plan_name_,
                   "A named plan instead of files (released, t12, n12, n34, p7, r8, p165), or the "
                   "path of a config.json")
        ->check(known_plan)
        ->excludes(model);
    app.add_flag("--json", output_.json, "Print one JSON object");
    app.add_flag("--quiet", output_.quiet, "No notes on standard error");
  }

  int run() override {
    const Result<void> read = plan_name_.empty() ? from_files() : from_plan();
    if (!read) return closed(read.error());
    const ModelPlan plan = make_plan(config_);
    const Result<KvSpec> kv = KvSpec::make(plan.kv);
    if (!kv) return closed(kv.error());
    if (output_.json) {
      print_json(to_json(plan, *kv));
    } else {
      print_text(plan, *kv);
    }
    return problems_.empty() ? 0 : fail(unsound(title_, problems_));
  }

 private:
  // A model that cannot be opened has no figures: its reason is the only problem.
  int closed(const Error& error) const {
    if (output_.json) {
      boost::json::object report;
      report["model"] = title_.empty() ? boost::json::value() : boost::json::value(title_);
      for (const char* figure : {"parameters", "payload_bytes", "tensors", "kv_bytes_per_token",
                                 "window_bytes_per_sequence", "encoder_layers", "layers"}) {
        report[figure] = nullptr;
      }
      report["problems"] = boost::json::array{error.message};
      print_json(report);
    }
    return fail(error);
  }

  Result<void> from_plan() {
    title_ = plan_name_;
    FATHOM_ASSIGN_OR_RETURN(config_, plan_from(plan_name_));
    totals_ = inventory_totals(expected_tensors(config_));
    return {};
  }

  // Counts what the files hold, not what they should hold; the difference is in problems_.
  Result<void> from_files() {
    FATHOM_ASSIGN_OR_RETURN(title_, model_path(model_));
    FATHOM_ASSIGN_OR_RETURN(ConfigFile file, read_config(title_ + "/config.json"));
    for (const std::string& warning : file.warnings) {
      if (!output_.quiet) note(title_ + "/config.json: " + warning);
    }
    config_ = std::move(file.config);
    FATHOM_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(title_));
    problems_ = checkpoint.compare(expected_tensors(config_));
    for (const StoredTensor& tensor : checkpoint.tensors()) {
      const Tensor& view = tensor.view;
      totals_ +=
          {.dtype = view.dtype, .shape = {view.shape.begin(), view.shape.begin() + view.rank}};
    }
    return {};
  }

  boost::json::object to_json(const ModelPlan& plan, const KvSpec& kv) const {
    boost::json::array layers;
    for (const LayerPlan& layer : plan.layers) {
      layers.push_back(boost::json::object{
          {"layer", layer.layer},
          {"half", layer.decoder ? "decoder" : "encoder"},
          {"role", mode_name(layer.mode)},
          {"ratio", layer.ratio},
          {"sources", boost::json::object{{"kv", id_or_null(layer.kv_source)},
                                          {"index", id_or_null(layer.index_source)}}},
          {"pool", pool_text(layer.pool)},
          {"rope_theta", number(layer.rope_theta)},
          {"yarn", layer.yarn},
          {"engram", layer.engram >= 0}});
    }
    return {{"model", title_},
            {"parameters", totals_.parameters},
            {"payload_bytes", totals_.payload_bytes},
            {"tensors", totals_.tensors},
            {"kv_bytes_per_token", number(kv.bytes_per_token())},
            {"window_bytes_per_sequence", kv.window_bytes()},
            {"encoder_layers", plan.n_encoder_layers},
            {"layers", std::move(layers)},
            {"problems", boost::json::value_from(problems_)}};
  }

  void print_text(const ModelPlan& plan, const KvSpec& kv) const {
    const TextConfig& text = config_.text_config;
    const auto n_layers = static_cast<int>(plan.layers.size());
    std::cout << title_ << "\n"
              << "layers       " << n_layers << " (" << plan.n_encoder_layers << " encoder, "
              << n_layers - plan.n_encoder_layers << " decoder), width " << text.hidden_size << ", "
              << text.num_experts_per_tok << " of " << text.n_routed_experts << " experts\n"
              << "parameters   " << grouped(totals_.parameters) << "\n"
              << "tensors      " << grouped(totals_.tensors) << "\n"
              << "payload      " << grouped(totals_.payload_bytes) << " bytes\n"
              << "cache        " << kv.bytes_per_token() << " bytes a token, "
              << grouped(kv.window_bytes()) << " bytes of windows a sequence\n\n"
              << plan_text(plan);
    if (problems_.empty()) return;
    std::cout << "\n" << problems_.size() << " problems\n";
    print_problems(problems_);
  }

  OutputFlags output_;
  std::string model_;
  std::string plan_name_;

  std::string title_;
  ModelConfig config_;
  InventoryTotals totals_;
  std::vector<std::string> problems_;
};

}  // namespace

std::unique_ptr<Verb> make_inspect() { return std::make_unique<InspectVerb>(); }

}  // namespace fathom
