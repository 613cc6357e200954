#include <CLI/CLI.hpp>
#include <algorithm>
#include <condition_variable>
#include <iostream>
#include <mutex>
#include <optional>

#include "apps/common.h"
#include "apps/numbers.h"
#include "apps/progress.h"
#include "apps/signals.h"
#include "apps/store_prefix.h"
#include "apps/store_report.h"
#include "apps/verb.h"
#include "base/clock.h"
#include "base/temporary.h"
#include "cache/store/audit.h"
#include "cache/store/rewrite.h"

namespace fathom {
namespace {

namespace json = boost::json;

constexpr double kLookAgainSeconds = 0.1;  // for a signal

// Holds work back to a rate; 0: none.
class Pace {
 public:
  explicit Pace(int64_t bytes_per_s) : bytes_per_s_(bytes_per_s) {}

  // Until so many bytes are due, or a signal asks to stop.
  void wait(int64_t done) {
    if (bytes_per_s_ == 0) return;
    const double due = start_ + static_cast<double>(done) / static_cast<double>(bytes_per_s_);
    std::unique_lock lock(mutex_);
    while (!StopSignals::requested()) {
      const double left = due - steady_seconds();
      if (left <= 0) return;
      never_.wait_for(lock, std::chrono::duration<double>(std::min(left, kLookAgainSeconds)));
    }
  }

 private:
  const int64_t bytes_per_s_;
  const double start_ = steady_seconds();
  std::mutex mutex_;
  std::condition_variable never_;
};

class StoreVerb final : public Verb {
 public:
  const char* name() const override { return "store"; }
  const char* help() const override { return "What a folder of kept prefixes holds, and its care"; }

  void add_options(CLI::App& app) override {
    app.add_option("JOB", job_, "One of those below")
        ->check(
            CLI::IsMember({"stat", "ls", "check", "scrub", "compact", "erase", "export", "import"}))
        ->required();
    app.add_option("FOLDER", folder_, "The store's folder")->required();
    CLI::Option* tenant = app.add_option("--tenant", tenant_text_,
                                         "Tag of the tenant, as stat shows it; for ls and erase")
                              ->type_name("TAG");
    CLI::Option* chains =
        app.add_flag("--chains", chains_, "ls: a line for each last block of a chain");
    CLI::Option* rate =
        app.add_option("--rate", rate_, "scrub: bytes a second, 0: no bound (K, M, G)")
            ->transform(size_number(0, int64_t{1} << 50))
            ->capture_default_str();
    key_ =
        app.add_option("--store-key", key_file_,
                       "Key that the store is sealed with; check, scrub: unseal every payload, too")
            ->type_name("FILE");
    output_.add_to(app);
    CLI::Option* jsonl = app.add_flag("--jsonl", jsonl_, "ls: one JSON object a line")
                             ->excludes(app.get_option("--json"));
    only_ = prefix_.add_to(app);
    only_.insert(only_.end(), {{tenant, {"ls", "erase"}},
                               {chains, {"ls"}},
                               {jsonl, {"ls"}},
                               {rate, {"scrub"}},
                               {key_, {"check", "scrub", "export", "import"}}});
    app.footer(
        "Jobs\n"
        "  stat      identity, bytes and blocks, by age and by tenant; also of a store in use\n"
        "  ls        the blocks, or with --chains their chains; also of a store in use\n"
        "  check     reads and verifies every record, and the index; of a store not in use\n"
        "  scrub     the same, also of a store in use, at a rate\n"
        "  compact   writes segments with dead bytes anew; of a store not in use\n"
        "  erase     removes all that is of a --tenant; of a store not in use\n"
        "  export    writes the prefix that ends with a --block to a file, -o; sealed where the\n"
        "            store is, but with --clear; also of a store in use\n"
        "  import    adds the prefix in a file, -f; to a store not in use");
  }

  std::string misuse(const TypedOptions& typed) const override {
    for (const auto& [option, jobs] : only_) {
      if (typed.contains(option) && std::ranges::find(jobs, job_) == jobs.end()) {
        return option->get_name() + ": has no effect with " + job_;
      }
    }
    std::string of_prefix = prefix_.misuse(job_, typed.contains(key_));
    if (!of_prefix.empty()) return of_prefix;
    if (job_ == "erase" && tenant_text_.empty()) return "--tenant: wanted a value, found none";
    if (tenant_text_.empty()) return {};
    const auto tag = parse_tag(tenant_text_);
    return tag ? std::string() : "--tenant: " + tag.error().message;
  }

  int run() override {
    const StopSignals stop;
    return StopSignals::finish(run_job());
  }

 private:
  int run_job() {
    if (!tenant_text_.empty()) tenant_ = *parse_tag(tenant_text_);
    if (job_ == "check") return check(audit_alone());
    if (job_ == "scrub") return check(audit());
    if (job_ == "compact" || job_ == "erase") return rewrite();
    if (job_ == "export" || job_ == "import") return prefix_.run(job_, folder_, key_file_, output_);
    const Result<StoreSurvey> survey = survey_store(folder_);
    if (!survey) return fail(survey.error());
    if (!survey->index_fault.empty()) {
      return fail(invalid(survey->index_fault + "; a start of the store makes it anew"));
    }
    if (job_ == "ls") {
      list(*survey);
    } else {
      output_.json ? print_json(stat_json(*survey)) : print_stat(*survey);
    }
    return 0;
  }

  void list(const StoreSurvey& survey) const {
    json::array all;
    const auto print = [&](const json::object& object) {
      jsonl_ ? print_json(object) : static_cast<void>(all.push_back(object));
    };
    const bool as_text = !jsonl_ && !output_.json;
    if (chains_) {
      for (const StoreChain& chain : chains_of(survey.rows)) {
        if (tenant_ && chain.last.block.tenant_tag != *tenant_) continue;
        as_text ? print_chain(chain) : print(chain_json(chain));
      }
    } else {
      for (const IndexRow& row : survey.rows) {
        if (tenant_ && row.head.block.tenant_tag != *tenant_) continue;
        as_text ? print_block(row.head) : print(block_json(row.head));
      }
    }
    if (output_.json) print_json(json::object{{chains_ ? "chains" : "blocks", std::move(all)}});
  }

  int check(const Result<AuditReport>& report) const {
    if (!report) return fail(report.error());
    if (output_.json) {
      print_json(json::object{{"segments", report->n_segments},
                              {"blocks", report->n_blocks},
                              {"bytes", report->bytes},
                              {"unindexed", report->n_unindexed},
                              {"torn_bytes", report->torn_bytes},
                              {"problems", json::value_from(report->problems)}});
    } else {
      print_problems(report->problems);
      std::cout << one_line(folder_) << ": " << report->n_segments << " segments, "
                << report->n_blocks << " blocks, " << report->bytes << " bytes read; without a row "
                << report->n_unindexed << " records and " << report->torn_bytes
                << " bytes of none\n";
    }
    return report->problems.empty() ? 0 : fail(unsound(folder_, report->problems));
  }

  Result<AuditReport> audit_alone() {
    // Whose folder it is comes before the lock, which is a file in it.
    if (const auto survey = survey_store(folder_); !survey) return survey.error();
    const auto lock = FolderLock::take(folder_);
    if (!lock && lock.error().code == ErrorCode::kExhausted) {
      return exhausted(lock.error().message + "; scrub looks at a store in use");
    }
    // Where the lock cannot be taken nobody can write, and nobody needs to be kept from it.
    return audit();
  }

  Result<AuditReport> audit() {
    AuditOptions options;
    if (!key_file_.empty()) {
      FATHOM_ASSIGN_OR_RETURN(options.key, read_key(key_file_));
    }
    ProgressLine line(output_.show_progress(), job_, "bytes");
    Pace pace(job_ == "scrub" ? rate_ : 0);
    options.progress = [&](int64_t done, int64_t all) {
      line.update(done, all);
      pace.wait(done);
      return !StopSignals::requested();
    };
    auto report = audit_store(folder_, options);
    line.clear();
    if (report || report.error().code != ErrorCode::kCancelled) return report;
    return Error{ErrorCode::kCancelled, folder_ + ": stopped; nothing was changed"};
  }

  int rewrite() const {
    ProgressLine line(output_.show_progress(), job_, "bytes");
    RewriteOptions options;
    // A file of settings may name one for ls.
    if (job_ == "erase") options.erase_tenant = tenant_;
    options.progress = [&](int64_t done, int64_t all) {
      line.update(done, all);
      return !StopSignals::requested();
    };
    const Result<RewriteReport> report = rewrite_store(folder_, options);
    line.clear();
    if (!report) return fail(report.error());
    if (output_.json) {
      json::object result = {{"segments", report->n_segments},
                             {"rewritten", report->n_rewritten},
                             {"moved", report->n_moved},
                             {"bad", report->n_bad},
                             {"bytes_before", report->bytes_before},
                             {"bytes_after", report->bytes_after}};
      if (options.erase_tenant) result["erased"] = report->n_erased;
      print_json(result);
      return 0;
    }
    std::cout << one_line(folder_) << ": " << report->n_rewritten << " of " << report->n_segments
              << " segments written anew, " << report->n_moved << " blocks moved, "
              << report->bytes_before << " bytes before, " << report->bytes_after << " after\n";
    if (report->n_bad > 0) std::cout << report->n_bad << " blocks failed their checks and went\n";
    if (options.erase_tenant) std::cout << report->n_erased << " records of the tenant erased\n";
    return 0;
  }

  PrefixFlags::OnlyWith only_;
  const CLI::Option* key_ = nullptr;
  PrefixFlags prefix_;
  OutputFlags output_;
  std::string job_;
  std::string folder_;
  std::string tenant_text_;
  std::string key_file_;
  std::optional<uint64_t> tenant_;
  int64_t rate_ = 0;
  bool chains_ = false;
  bool jsonl_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_store() { return std::make_unique<StoreVerb>(); }

}  // namespace fathom
