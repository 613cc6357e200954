#include "eval/case_check.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "eval/case_bounds.h"
#include "eval/collect.h"

namespace fathom {
namespace {

using Numbers = std::vector<double>;

struct StoredCase {
  std::string name;
  const Checkpoint& file;
  const CaseBounds& bounds;
};

// One stored case file against one loaded model.
class CaseRun {
 public:
  CaseRun(const StoredCase& stored, const Model& model, Ops& ops, CaseReport& report)
      : name_(stored.name),
        file_(stored.file),
        model_(model),
        ops_(ops),
        bounds_(stored.bounds),
        report_(report),
        probe_([](const std::string&) { return true; }) {}

  Result<void> run();

 private:
  // A prompt and what is stored about its rows: `prefix` stands before the stored names.
  Result<void> run_prompt();
  Result<void> run_lengths();
  Result<void> run_decode();
  Result<void> run_decode_full();
  Result<void> run_replay();
  Result<void> force_layers(Runner& runner);

  Result<std::unique_ptr<Runner>> make_runner(Schedule schedule, int64_t context);
  std::vector<int32_t> tokens(const std::string& prefix = "") const;
  Numbers numbers(const std::string& name) const { return to_numbers(*file_.get(name)); }
  Result<void> require_pairs() const;
  void count_ties();

  void compare_logits(const std::string& name, const Numbers& got, const Numbers& want,
                      double bound);
  void compare_forced(const std::string& prefix, bool free_caches);
  void compare_ids(const std::string& name, const Numbers& got, const Numbers& want,
                   int64_t want_columns);
  void compare_row_ids(const std::string& prefix, int64_t row, int64_t n_rows, int64_t got_row);
  void note(const std::string& tensor, double error, double bound);
  void fail(const std::string& tensor, const std::string& text);

  std::string name_;
  const Checkpoint& file_;
  const Model& model_;
  Ops& ops_;
  const CaseBounds& bounds_;
  CaseReport& report_;
  CollectingProbe probe_;
};

bool is_layer_name(std::string_view name) {
  return name.size() > 4 && name[0] == 'L' && name[3] == '.';
}

Numbers row_of(const Numbers& all, int64_t row, int64_t width) {
  const auto begin = all.begin() + row * width;
  return {begin, begin + width};
}

Numbers without_holes(const Numbers& ids) {
  Numbers kept;
  for (const double id : ids) {
    if (id >= 0) kept.push_back(id);
  }
  return kept;
}

double largest_difference(const Numbers& a, const Numbers& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(a[i] - b[i]);
    if (std::isnan(difference) && !(std::isinf(a[i]) && a[i] == b[i])) return INFINITY;
    if (!std::isnan(difference)) largest = std::max(largest, difference);
  }
  return largest;
}

double bf16_ulp(double value) {
  if (value == 0 || !std::isfinite(value)) return 0x1p-133;
  return std::ldexp(1.0, std::ilogb(value) - 7);
}

void CaseRun::fail(const std::string& tensor, const std::string& text) {
  report_.problems.push_back("case " + name_ + ": " + tensor + ": " + text);
}

void CaseRun::note(const std::string& tensor, double error, double bound) {
  ++report_.compared;
  if (error > bound || std::isnan(error)) {
    fail(tensor, "wanted a deviation of at most " + std::to_string(bound) + ", found " +
                     std::to_string(error));
  }
  if (report_.worst.bound == 0 || error * report_.worst.bound > report_.worst.error * bound) {
    report_.worst = {.case_name = name_, .tensor = tensor, .error = error, .bound = bound};
  }
}

Result<std::unique_ptr<Runner>> CaseRun::make_runner(Schedule schedule, int64_t context) {
  return Runner::make(model_, ops_,
                      {.schedule = schedule,
                       .context = context,
                       .max_rows = context,
                       .max_logit_rows = schedule == Schedule::kExact ? context : 1});
}

std::vector<int32_t> CaseRun::tokens(const std::string& prefix) const {
  const Numbers ids = numbers(prefix + "tokens");
  return {ids.begin(), ids.end()};
}

void CaseRun::count_ties() {
  for (const StoredTensor& tensor : file_.tensors()) {
    if (!tensor.name.ends_with("_gap")) continue;
    const Numbers gaps = to_numbers(tensor.view);
    report_.ties += std::ranges::count(gaps, 0.0);
  }
}

void CaseRun::compare_logits(const std::string& name, const Numbers& got, const Numbers& want,
                             double bound) {
  if (got.size() != want.size()) {
    return fail(name, "wanted " + std::to_string(want.size()) + " values, found " +
                          std::to_string(got.size()));
  }
  note(name, largest_difference(got, want), bound);
}

// Lists of ids, row by row, without holes; our rows may have more columns.
void CaseRun::compare_ids(const std::string& name, const Numbers& got, const Numbers& want,
                          int64_t want_columns) {
  const auto n_rows = static_cast<int64_t>(want.size()) / want_columns;
  const auto got_columns = static_cast<int64_t>(got.size()) / n_rows;
  ++report_.compared;
  for (int64_t row = 0; row < n_rows; ++row) {
    if (without_holes(row_of(got, row, got_columns)) !=
        without_holes(row_of(want, row, want_columns))) {
      return fail(name, "wanted equal ids, found others in row " + std::to_string(row));
    }
  }
}

// Every stored intermediate below `prefix` against what the probe saw.
void CaseRun::compare_forced(const std::string& prefix, bool free_caches) {
  for (const StoredTensor& stored : file_.tensors()) {
    if (!stored.name.starts_with(prefix)) continue;
    const std::string name = stored.name.substr(prefix.size());
    if (!is_layer_name(name) || name.ends_with("gap")) continue;
    const auto shown = probe_.values().find(name);
    if (shown == probe_.values().end()) {
      fail(stored.name, "the engine does not show it");
      continue;
    }
    const Numbers want = to_numbers(stored.view);
    const Numbers& got = shown->second;
    if (stored.view.dtype == DType::kI32) {
      compare_ids(stored.name, got, want, stored.view.dim(stored.view.rank - 1));
      continue;
    }
    if (got.size() != want.size()) {
      fail(stored.name, "wanted " + std::to_string(want.size()) + " values, found " +
                            std::to_string(got.size()));
      continue;
    }
    const std::string what = name.substr(4);
    const Bound bound = free_caches ? bounds_.free_running(what)
                                    : bounds_.layer_forced(what, stored.view.dtype == DType::kF32);
    double worst = 0;
    int64_t n_different = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      if (got[i] == want[i]) continue;
      ++n_different;
      const double allowed = std::max(bound.absolute, bound.ulps * bf16_ulp(want[i]));
      const double error = std::fabs(got[i] - want[i]);
      worst = std::max(worst, std::isnan(error) ? INFINITY : error / allowed);
    }
    note(stored.name, worst, 1.0);
    const auto allowed =
        std::max<int64_t>(1, std::llround(bound.fraction * static_cast<double>(want.size())));
    if (n_different > allowed) {
      fail(stored.name, "wanted at most " + std::to_string(allowed) + " other values of " +
                            std::to_string(want.size()) + ", found " + std::to_string(n_different));
    }
  }
}

// Decisions of one row that were stored under `prefix` without teacher forcing.
void CaseRun::compare_row_ids(const std::string& prefix, int64_t row, int64_t n_rows,
                              int64_t got_row) {
  for (const auto& [name, all] : probe_.values()) {
    if (!is_layer_name(name)) continue;
    const std::string layer = name.substr(0, 4);
    const std::string what = name.substr(4);
    Numbers want;
    if (what == "attn.topk_ids" || what == "attn.pool_blocks") {
      const StoredTensor* stored = file_.find(prefix + layer + what.substr(5));
      if (stored == nullptr) stored = file_.find(prefix + name);
      if (stored == nullptr) continue;
      const Numbers values = to_numbers(stored->view);
      want = row_of(values, row, static_cast<int64_t>(values.size()) / n_rows);
    } else if (what == "moe.ids" && file_.find(prefix + "moe_ids") != nullptr) {
      const Tensor stored = *file_.get(prefix + "moe_ids");
      const int64_t k = stored.dim(stored.rank - 1);
      const int64_t n_layers = stored.dim(stored.rank - 2);
      want = row_of(to_numbers(stored), row * n_layers + std::stol(layer.substr(1, 2)), k);
    } else {
      continue;
    }
    const auto rows_shown = static_cast<int64_t>(probe_.values().at("L00.moe.ids").size()) /
                            model_.config().text_config.num_experts_per_tok;
    const auto columns = static_cast<int64_t>(all.size()) / rows_shown;
    compare_ids(prefix + name, row_of(all, got_row, columns), want,
                static_cast<int64_t>(want.size()));
  }
}

// Every stored prompt has logits of the model's vocabulary.
Result<void> CaseRun::require_pairs() const {
  const int64_t vocab_size = model_.config().text_config.vocab_size;
  int64_t n_prompts = 0;
  for (const StoredTensor& stored : file_.tensors()) {
    const bool is_prompt = stored.name == "tokens" || stored.name.ends_with(".tokens");
    const bool needs_logits = is_prompt && !name_.starts_with("decode_full");
    if (is_prompt && (stored.view.dtype != DType::kI32 || stored.view.elements() == 0)) {
      return invalid("case " + name_ + ": " + stored.name + ": wanted I32 ids, found " +
                     describe_tensor(stored.view.dtype, {stored.view.shape.data(),
                                                         static_cast<size_t>(stored.view.rank)}));
    }
    n_prompts += is_prompt ? 1 : 0;
    if (!needs_logits) continue;
    const std::string name = stored.name.substr(0, stored.name.size() - 6) + "logits";
    const StoredTensor* logits = file_.find(name);
    if (logits == nullptr || logits->view.rank < 1 || logits->view.elements() == 0 ||
        logits->view.dim(logits->view.rank - 1) != vocab_size) {
      return invalid("case " + name_ + ": " + name + ": wanted rows of " +
                     std::to_string(vocab_size) + " values, found " +
                     (logits == nullptr ? "none" : shape_text(logits->view)));
    }
  }
  if (n_prompts == 0) return invalid("case " + name_ + ": tokens: wanted prompts, found none");
  return {};
}

Result<void> CaseRun::run() {
  FATHOM_RETURN_IF_ERROR(require_pairs());
  count_ties();
  if (file_.find("tokens") == nullptr) {
    const bool replay = name_.starts_with("replay");
    return replay ? run_replay() : run_lengths();
  }
  if (name_.starts_with("decode_full")) return run_decode_full();
  if (name_.starts_with("decode")) return run_decode();
  return run_prompt();
}

// short, masked, long: a prompt with logits at all or at chosen positions.
Result<void> CaseRun::run_prompt() {
  const std::vector<int32_t> ids = tokens();
  const auto n = static_cast<int64_t>(ids.size());
  std::vector<uint8_t> image;
  if (file_.find("token_types") != nullptr) {
    for (const double type : numbers("token_types")) image.push_back(type >= 0 ? 1 : 0);
  }
  FATHOM_ASSIGN_OR_RETURN(const auto runner, make_runner(Schedule::kExact, n));
  FATHOM_ASSIGN_OR_RETURN(Sequence sequence, runner->open());
  FATHOM_RETURN_IF_ERROR(runner->append(sequence, ids, image));
  ops_.set_probe(&probe_);
  const StepItem item = {.sequence = &sequence, .n_rows = n, .want = WantLogits::kAll};
  FATHOM_ASSIGN_OR_RETURN(const Tensor logits, runner->step({&item, 1}));
  ops_.set_probe(nullptr);

  const Numbers got = to_numbers(logits);
  const Numbers want = numbers("logits");
  const int64_t width = logits.dim(1);
  Numbers positions;
  if (file_.find("positions") != nullptr) {
    positions = numbers("positions");
  } else {
    for (int64_t p = 0; p < n; ++p) positions.push_back(static_cast<double>(p));
  }
  const bool is_long = name_.starts_with("long");
  double square = 0;
  int64_t n_argmax = 0;
  for (size_t i = 0; i < positions.size(); ++i) {
    const auto row = static_cast<int64_t>(positions[i]);
    const Numbers ours = row_of(got, row, width);
    const Numbers theirs = row_of(want, static_cast<int64_t>(i), width);
    for (size_t c = 0; c < ours.size(); ++c) square += std::pow(ours[c] - theirs[c], 2);
    n_argmax += std::ranges::max_element(ours) - ours.begin() ==
                std::ranges::max_element(theirs) - theirs.begin();
    const double difference = largest_difference(ours, theirs);
    if (!is_long) note("logits", difference, bounds_.logits(name_));
    // Where the logits agree to rounding no decision of this row can have been another one.
    if (difference <= 1e-3 && file_.find("L00.out") == nullptr) {
      compare_row_ids("", static_cast<int64_t>(i), static_cast<int64_t>(positions.size()), row);
    }
  }
  if (is_long) {
    const auto n_values = static_cast<double>(want.size());
    note("logits (rms)", std::sqrt(square / n_values), 0.15);
    const double share = static_cast<double>(n_argmax) / static_cast<double>(positions.size());
    note("logits (argmax differing)", 1 - share, 0.15);
  }
  runner->close(sequence);
  return file_.find("L00.out") != nullptr ? force_layers(*runner) : Result<void>();
}

// Starts every layer from the stored output of the one before.
Result<void> CaseRun::force_layers(Runner& runner) {
  for (const StoredTensor& stored : file_.tensors()) {
    const std::string& name = stored.name;
    const bool input = name.ends_with(".out") && name.size() == 7;
    if (input || name.ends_with("engram.out") || name.ends_with("hc_ffn.pre")) {
      probe_.force(name, stored.view);
    }
  }
  FATHOM_ASSIGN_OR_RETURN(Sequence sequence, runner.open());
  FATHOM_RETURN_IF_ERROR(runner.append(sequence, tokens()));
  const StepItem item = {
      .sequence = &sequence, .n_rows = sequence.pending(), .want = WantLogits::kLast};
  probe_.clear();
  ops_.set_probe(&probe_);
  FATHOM_RETURN_IF_ERROR(runner.step({&item, 1}));
  ops_.set_probe(nullptr);
  compare_forced("", false);
  runner.close(sequence);
  return {};
}

// prefill: many prompts, the last position of each.
Result<void> CaseRun::run_lengths() {
  int64_t n_flipped = 0;
  for (const StoredTensor& stored : file_.tensors()) {
    if (!stored.name.ends_with(".tokens")) continue;
    const std::string prefix = stored.name.substr(0, stored.name.size() - 6);
    const std::vector<int32_t> ids = tokens(prefix);
    FATHOM_ASSIGN_OR_RETURN(const auto runner,
                            make_runner(Schedule::kExact, static_cast<int64_t>(ids.size())));
    FATHOM_ASSIGN_OR_RETURN(Sequence sequence, runner->open());
    FATHOM_RETURN_IF_ERROR(runner->append(sequence, ids));
    probe_.clear();
    ops_.set_probe(&probe_);
    FATHOM_ASSIGN_OR_RETURN(const Tensor logits, runner->prefill(sequence));
    ops_.set_probe(nullptr);
    const Numbers want = numbers(prefix + "logits");
    const double difference = largest_difference(to_numbers(logits), want);
    const double bound = bounds_.logits(name_, std::to_string(ids.size()));
    if (difference <= 1e-3) {
      compare_row_ids(prefix, 0, 1, static_cast<int64_t>(ids.size()) - 1);
    }
    // One prompt may have met a flipped code: rounding noise, when it is small.
    const bool flipped = difference > bound && difference < 0.5 && n_flipped++ == 0;
    note(prefix + "logits", difference, flipped ? 0.5 : bound);
  }
  return {};
}

Result<void> CaseRun::run_decode() {
  const std::vector<int32_t> ids = tokens();
  const Tensor stored = *file_.get("logits");
  const int64_t steps = stored.dim(0) - 1;
  const auto n = static_cast<int64_t>(ids.size());
  const Numbers want = to_numbers(stored);
  FATHOM_ASSIGN_OR_RETURN(const auto runner, make_runner(Schedule::kExact, n));
  FATHOM_ASSIGN_OR_RETURN(Sequence sequence, runner->open());
  FATHOM_RETURN_IF_ERROR(
      runner->append(sequence, std::span(ids).first(static_cast<size_t>(n - steps))));
  for (int64_t i = 0; i <= steps; ++i) {
    if (i > 0) {
      FATHOM_RETURN_IF_ERROR(
          runner->append(sequence, {&ids[static_cast<size_t>(n - steps + i - 1)], 1}));
    }
    probe_.clear();
    ops_.set_probe(&probe_);
    FATHOM_ASSIGN_OR_RETURN(const Tensor logits, runner->prefill(sequence));
    ops_.set_probe(nullptr);
    const Numbers row = row_of(want, i, stored.dim(1));
    const double difference = largest_difference(to_numbers(logits), row);
    note("logits", difference, bounds_.logits(name_));
    if (i > 0 && difference <= 1e-3) compare_row_ids("", i - 1, steps, 0);
  }
  runner->close(sequence);
  return {};
}

// Single steps after a prompt, each layer started from stored inputs.
Result<void> CaseRun::run_decode_full() {
  std::set<int64_t> positions;
  for (const StoredTensor& stored : file_.tensors()) {
    if (stored.name.starts_with("pos")) positions.insert(std::stol(stored.name.substr(3)));
  }
  const std::vector<int32_t> ids = tokens();
  if (positions.empty() || *positions.rbegin() >= static_cast<int64_t>(ids.size())) {
    return invalid("case " + name_ + ": tokens: wanted one for every stored position");
  }
  FATHOM_ASSIGN_OR_RETURN(const auto runner,
                          make_runner(Schedule::kExact, static_cast<int64_t>(ids.size())));
  FATHOM_ASSIGN_OR_RETURN(Sequence sequence, runner->open());
  const auto all = std::span(ids);
  for (const int64_t position : positions) {
    const auto done = static_cast<size_t>(sequence.length);
    const auto next = static_cast<size_t>(position);
    if (next > done) {
      FATHOM_RETURN_IF_ERROR(runner->append(sequence, all.subspan(done, next - done)));
      FATHOM_RETURN_IF_ERROR(runner->prefill(sequence));
    }
    FATHOM_RETURN_IF_ERROR(runner->append(sequence, all.subspan(next, 1)));
    const std::string prefix = "pos" + std::to_string(position) + ".";
    CollectingProbe probe([](const std::string&) { return true; });
    for (const StoredTensor& stored : file_.tensors()) {
      if (!stored.name.starts_with(prefix)) continue;
      const std::string name = stored.name.substr(prefix.size());
      const bool input = name.ends_with(".out") && name.size() == 7;
      if (input || name.ends_with("engram.out") || name.ends_with("hc_ffn.pre")) {
        probe.force(name, stored.view);
      }
    }
    ops_.set_probe(&probe);
    FATHOM_RETURN_IF_ERROR(runner->prefill(sequence));
    ops_.set_probe(nullptr);
    probe_ = std::move(probe);
    compare_forced(prefix, true);
  }
  return {};
}

Result<void> CaseRun::run_replay() {
  for (const StoredTensor& stored : file_.tensors()) {
    if (!stored.name.ends_with(".tokens")) continue;
    const std::string prefix = stored.name.substr(0, stored.name.size() - 6);
    const std::vector<int32_t> ids = tokens(prefix);
    const Tensor want = *file_.get(prefix + "logits");
    const Numbers want_numbers = to_numbers(want);
    const auto n = static_cast<int64_t>(ids.size());
    const int64_t prompt = n - (want.dim(0) - 1);
    FATHOM_ASSIGN_OR_RETURN(const auto runner, make_runner(Schedule::kDeploy, n));
    FATHOM_ASSIGN_OR_RETURN(Sequence sequence, runner->open());
    FATHOM_RETURN_IF_ERROR(
        runner->append(sequence, std::span(ids).first(static_cast<size_t>(prompt))));
    const double bound = bounds_.logits(name_, std::to_string(prompt));
    for (int64_t i = 0; i < want.dim(0); ++i) {
      if (i > 0) {
        FATHOM_RETURN_IF_ERROR(
            runner->append(sequence, {&ids[static_cast<size_t>(prompt + i - 1)], 1}));
      }
      probe_.clear();
      ops_.set_probe(&probe_);
      FATHOM_ASSIGN_OR_RETURN(const Tensor logits, runner->prefill(sequence));
      ops_.set_probe(nullptr);
      compare_logits(prefix + "logits", to_numbers(logits), row_of(want_numbers, i, want.dim(1)),
                     bound);
      if (i > 0) continue;
      for (const StoredTensor& window : file_.tensors()) {
        if (!window.name.starts_with(prefix) || !window.name.ends_with(".window_kv")) continue;
        const std::string layer = window.name.substr(prefix.size(), 4);
        compare_logits(window.name, probe_.values().at(layer + "attn.kv"), to_numbers(window.view),
                       bounds_.free_running("attn.kv").absolute);
      }
    }
  }
  return {};
}

}  // namespace

Result<CaseReport> check_cases(const std::string& path, Ops& ops, const CaseOptions& options) {
  FATHOM_ASSIGN_OR_RETURN(const CaseBounds bounds, CaseBounds::read(options.manifest));
  std::vector<std::string> files;
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(options.cases, code)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  }
  if (code) return not_found(options.cases + ": cannot list cases: " + code.message());
  if (files.empty()) return not_found(options.cases + ": wanted case files, found none");
  std::ranges::sort(files);

  CaseReport report;
  for (const std::string& file : files) {
    const std::string name = std::filesystem::path(file).stem().string();
    const IndexScores scores =
        name.ends_with("_fp32score") ? IndexScores::kF32 : IndexScores::kBf16;
    FATHOM_ASSIGN_OR_RETURN(
        const LoadedModel loaded,
        load_model(path, {.model = {.index_scores = scores, .memory = &ops.memory()},
                          .need_tokenizer = false}));
    FATHOM_ASSIGN_OR_RETURN(const Checkpoint stored, Checkpoint::open(file));
    const size_t n_problems = report.problems.size();
    CaseRun run({name, stored, bounds}, *loaded.model, ops, report);
    FATHOM_RETURN_IF_ERROR(run.run());
    ++report.cases;
    ++(report.problems.size() == n_problems ? report.passed : report.failed);
  }
  return report;
}

}  // namespace fathom
