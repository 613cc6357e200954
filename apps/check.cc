#include <CLI/CLI.hpp>
#include <iostream>
#include <optional>

#include "apps/common.h"
#include "apps/progress.h"
#include "apps/verb.h"
#include "base/file.h"
#include "checkpoint/fingerprint.h"
#include "eval/case_check.h"

namespace fathom {
namespace {

class CheckVerb final : public Verb {
 public:
  const char* name() const override { return "check"; }
  const char* help() const override {
    return "Is this model sound; does it agree with stored cases";
  }

  void add_options(CLI::App& app) override {
    CLI::Option* model =
        app.add_option("MODEL", flags_.model, "Model folder (default: the model in models/)");
    app.add_option("--cases", cases_, "Folder of stored cases (default: MODEL/cases)");
    app.add_flag("--deep", deep_,
                 "Read every weight also of a model above 8 GiB: NaN codes, fingerprint");
    flags_.add_place(app);
    app.get_option("--model")->excludes(model);
    output_.add_to(app);
  }

  int run() override {
    const Result<CaseReport> report = check();
    if (!report) {
      if (output_.json) print_json(to_json({.problems = {report.error().message}}));
      return fail(report.error());
    }
    if (output_.json) {
      print_json(to_json(*report));
    } else {
      print_text(*report);
    }
    return report->problems.empty() ? 0 : fail(unsound(path_, report->problems));
  }

 private:
  Result<CaseReport> check() {
    FATHOM_ASSIGN_OR_RETURN(path_, model_path(flags_.model));
    // A device that is not there is found also where no case would have asked for it.
    if (flags_.backend != "auto") FATHOM_RETURN_IF_ERROR(open_backend(flags_));
    FATHOM_ASSIGN_OR_RETURN(CaseReport report, check_files());
    const std::string folder = cases_.empty() ? path_ + "/cases" : cases_;
    FATHOM_ASSIGN_OR_RETURN(const bool has_cases, has_folder(folder));
    if (!report.problems.empty() || (!has_cases && cases_.empty())) return report;
    FATHOM_ASSIGN_OR_RETURN(const auto ops, open_backend(flags_));
    ProgressLine line(output_.show_progress(), "checking", "cases");
    return check_cases(path_, *ops,
                       {.cases = folder,
                        .manifest = path_ + "/manifest.json",
                        .progress = [&](int64_t done, int64_t all) { line.update(done, all); }});
  }

  // All that would keep a verb from loading the model.
  Result<CaseReport> check_files() {
    ProgressLine reading(output_.show_progress(), "reading", "bytes");
    LoadOptions options = {
        .need_tokenizer = false,
        .n_threads = flags_.threads,
        .progress = [&](int64_t done, int64_t all) { reading.update(done, all); },
        .all_weights = deep_};
    CaseReport report;
    FATHOM_ASSIGN_OR_RETURN(report.problems, model_problems(path_, options));
    FATHOM_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(path_));
    n_tensors_ = static_cast<int64_t>(checkpoint.tensors().size());
    looked_at_ = deep_ || checkpoint.payload_bytes() <= kLookedAtBytes;
    if (!deep_) return report;
    // Computed from the bytes, not taken from the note beside the files: the question is whether
    // they are what they should be.
    FATHOM_ASSIGN_OR_RETURN(ThreadPool pool, ThreadPool::make(flags_.threads));
    const Sha256Digest digest = weights_fingerprint(checkpoint, pool);
    fingerprint_ = to_hex(digest);
    const std::optional<Sha256Digest> noted = noted_fingerprint(checkpoint);
    if (noted && *noted != digest) {
      report.problems.push_back(path_ + "/.fathom-fingerprint: wanted " + fingerprint_ +
                                ", found " + to_hex(*noted) +
                                "; where the weights are right, remove the file");
    }
    return report;
  }

  boost::json::object to_json(const CaseReport& report) const {
    boost::json::object result = common_json(report);
    if (!fingerprint_.empty()) result["fingerprint"] = fingerprint_;
    return result;
  }

  static boost::json::object common_json(const CaseReport& report) {
    return {{"cases", report.cases},
            {"passed", report.passed},
            {"failed", report.failed},
            {"ties", report.ties},
            {"undecided", report.undecided},
            {"compared", report.compared},
            {"worst", worst_json(report.worst)},
            {"problems", boost::json::value_from(report.problems)}};
  }

  // Null where nothing was compared.
  static boost::json::value worst_json(const WorstDeviation& worst) {
    if (worst.tensor.empty()) return nullptr;
    return boost::json::object{{"case", worst.case_name},
                               {"tensor", worst.tensor},
                               {"error", worst.error},
                               {"bound", worst.bound}};
  }

  void print_text(const CaseReport& report) const {
    print_problems(report.problems);
    std::cout << path_ << ": " << n_tensors_ << " tensors, " << report.cases << " cases, "
              << report.passed << " passed, " << report.failed << " failed, " << report.compared
              << " tensors compared, " << report.ties << " exact ties among stored decisions, "
              << report.undecided << " differing ones that rounding may turn\n";
    if (!looked_at_) std::cout << "weights not looked at: more than 8 GiB, see --deep\n";
    if (deep_) std::cout << "fingerprint " << fingerprint_ << "\n";
    print_worst(report);
    std::cout << verdict(report) << "\n";
  }

  // The outcome in words, in the last line.
  static std::string verdict(const CaseReport& report) {
    if (!report.problems.empty()) {
      return "the model is not sound: " + std::to_string(report.problems.size()) +
             (report.problems.size() == 1 ? " problem" : " problems");
    }
    return std::string("the model is sound: a verb would load it; ") +
           (report.cases == 0 ? "there are no stored cases to compare it with"
                              : "it agrees with every stored case");
  }

  static void print_worst(const CaseReport& report) {
    if (report.worst.tensor.empty()) return;
    std::cout << "closest to its bound: case " << report.worst.case_name << ", "
              << report.worst.tensor << ": " << report.worst.error << " of " << report.worst.bound
              << "\n";
  }

  ModelFlags flags_;
  OutputFlags output_;
  std::string cases_;
  bool deep_ = false;
  bool looked_at_ = false;
  std::string fingerprint_;
  std::string path_;
  int64_t n_tensors_ = 0;
};

}  // namespace

std::unique_ptr<Verb> make_check() { return std::make_unique<CheckVerb>(); }

}  // namespace fathom
