#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>

#include "apps/common.h"
#include "apps/verb.h"
#include "checkpoint/fingerprint.h"
#include "eval/case_check.h"
#include "model/inventory.h"

namespace fathom {
namespace {

class CheckVerb final : public Verb {
 public:
  const char* name() const override { return "check"; }
  const char* help() const override {
    return "Is this model sound; does it agree with stored cases";
  }

  void add_options(CLI::App& app) override {
    app.add_option("MODEL", flags_.model, "Model folder (default: the model in models/)");
    app.add_option("--cases", cases_, "Folder of stored cases (default: MODEL/cases)");
    app.add_flag("--deep", deep_, "Read every weight: NaN codes, fingerprint");
    flags_.add_to(app);
    output_.add_to(app);
  }

  int run() override {
    const Result<CaseReport> report = check();
    if (!report) return fail(report.error());
    if (output_.json) {
      print_json(to_json(*report));
    } else {
      print_text(*report);
    }
    return report->problems.empty() ? 0 : 1;
  }

 private:
  Result<CaseReport> check() {
    FATHOM_ASSIGN_OR_RETURN(path_, model_path(flags_.model));
    FATHOM_ASSIGN_OR_RETURN(CaseReport report, check_files());
    const std::string folder = cases_.empty() ? path_ + "/cases" : cases_;
    const bool has_cases = !cases_.empty() || std::filesystem::exists(folder);
    if (!report.problems.empty() || !has_cases) return report;
    FATHOM_ASSIGN_OR_RETURN(const auto ops, open_backend(flags_));
    return check_cases(path_, *ops, {.cases = folder, .manifest = path_ + "/manifest.json"});
  }

  // The configuration is sound and the files hold just the tensors that it asks for.
  Result<CaseReport> check_files() {
    FATHOM_ASSIGN_OR_RETURN(const ConfigFile file, read_config(path_ + "/config.json"));
    FATHOM_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(path_));
    CaseReport report;
    report.problems = checkpoint.compare(expected_tensors(file.config));
    n_tensors_ = static_cast<int64_t>(checkpoint.tensors().size());
    if (deep_) read_weights(checkpoint, report);
    return report;
  }

  // Computed from the bytes, not taken from the note beside the files: the question is whether they
  // are what they should be.
  void read_weights(const Checkpoint& checkpoint, CaseReport& report) {
    ThreadPool pool(flags_.threads);
    for (std::string& problem : find_bad_codes(checkpoint, pool)) {
      report.problems.push_back(std::move(problem));
    }
    fingerprint_ = to_hex(weights_fingerprint(checkpoint, pool));
  }

  boost::json::object to_json(const CaseReport& report) const {
    boost::json::object result = common_json(report);
    if (deep_) result["fingerprint"] = fingerprint_;
    return result;
  }

  static boost::json::object common_json(const CaseReport& report) {
    return {{"cases", report.cases},
            {"passed", report.passed},
            {"failed", report.failed},
            {"ties", report.ties},
            {"undecided", report.undecided},
            {"worst", boost::json::object{{"case", report.worst.case_name},
                                          {"tensor", report.worst.tensor},
                                          {"error", report.worst.error},
                                          {"bound", report.worst.bound}}},
            {"problems", boost::json::value_from(report.problems)}};
  }

  void print_text(const CaseReport& report) const {
    for (const std::string& problem : report.problems) std::cout << problem << "\n";
    std::cout << path_ << ": " << n_tensors_ << " tensors, " << report.cases << " cases, "
              << report.passed << " passed, " << report.failed << " failed, " << report.compared
              << " tensors compared, " << report.ties << " exact ties among stored decisions, "
              << report.undecided << " differing ones that rounding may turn\n";
    if (deep_) std::cout << "fingerprint " << fingerprint_ << "\n";
    if (report.cases == 0) return;
    std::cout << "closest to its bound: case " << report.worst.case_name << ", "
              << report.worst.tensor << ": " << report.worst.error << " of " << report.worst.bound
              << "\n";
  }

  ModelFlags flags_;
  OutputFlags output_;
  std::string cases_;
  bool deep_ = false;
  std::string fingerprint_;
  std::string path_;
  int64_t n_tensors_ = 0;
};

}  // namespace

std::unique_ptr<Verb> make_check() { return std::make_unique<CheckVerb>(); }

}  // namespace fathom
