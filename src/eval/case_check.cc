#include "eval/case_check.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "checkpoint/safetensors.h"
#include "eval/case_bounds.h"
#include "eval/case_compare.h"
#include "eval/case_names.h"
#include "eval/collect.h"

namespace fathom {
namespace {

// Logits that agree so far come from the same codes and decisions.
constexpr double kAgree = 1e-3;

// One stored case file against one loaded model.
class CaseRun {
 public:
  CaseRun(CaseComparison comparison, const Model& model, Ops& ops)
      : compare_(std::move(comparison)), file_(compare_.file()), model_(model), ops_(ops) {}

  Result<void> run();

 private:
  // A prompt and what is stored about its rows: `prefix` stands before the stored names.
  Result<void> run_prompt();
  Result<void> run_lengths();
  Result<void> run_length(const std::string& prefix, int64_t* n_flipped);
  Result<void> run_decode();
  Result<void> run_decode_full();
  Result<void> run_replays();
  Result<void> run_replay(const std::string& prefix, const std::string& name, Schedule schedule);
  void compare_map();
  Result<void> force_layers(Runner& runner);
  Result<void> forced_step(Runner& runner, Sequence& sequence, const std::string& prefix);
  void compare_prompt_logits(const Tensor& logits, const std::vector<int64_t>& positions);
  void compare_windows(const std::string& prefix);

  Result<std::unique_ptr<Runner>> make_runner(Schedule schedule, int64_t context);
  Result<Tensor> probed(Runner& runner, Sequence& sequence, CollectingProbe& probe);
  std::vector<int32_t> tokens(const std::string& prefix = "") const;
  Numbers numbers(const std::string& name) const { return to_numbers(*file_.get(name)); }
  std::vector<std::string> prefixes() const;
  Result<std::vector<int64_t>> positions(int64_t n) const;
  Result<std::vector<uint8_t>> image(int64_t n) const;
  void check_names(CaseKind kind);
  Result<void> check_prompts() const;
  Result<void> check_prompt(const StoredTensor& stored) const;
  Error wrong(const std::string& tensor, const std::string& text) const {
    return invalid(tensor + ": " + text);
  }

  CaseComparison compare_;
  const Checkpoint& file_;
  const Model& model_;
  Ops& ops_;
  CollectingProbe probe_{[](const std::string&) { return true; }};
};

bool is_layer_output(std::string_view name) {
  const std::optional<LayerName> layer = layer_name(name);
  return layer && layer->what == "out";
}

// What a layer is started from.
bool is_layer_input(std::string_view name) {
  return is_layer_output(name) || name.ends_with(".engram.out") || name.ends_with(".hc_ffn.pre");
}

Numbers row_of(const Numbers& all, int64_t row, int64_t width) {
  const auto begin = all.begin() + row * width;
  return {begin, begin + width};
}

Result<std::unique_ptr<Runner>> CaseRun::make_runner(Schedule schedule, int64_t context) {
  return Runner::make(model_, ops_,
                      {.schedule = schedule,
                       .context = context,
                       .max_rows = context,
                       .max_logit_rows = schedule == Schedule::kExact ? context : 1});
}

// Computes what is pending while the probe looks on.
Result<Tensor> CaseRun::probed(Runner& runner, Sequence& sequence, CollectingProbe& probe) {
  probe.clear();
  ops_.set_probe(&probe);
  Result<Tensor> logits = runner.prefill(sequence);
  ops_.set_probe(nullptr);
  return logits;
}

std::vector<int32_t> CaseRun::tokens(const std::string& prefix) const {
  const Numbers ids = numbers(prefix + "tokens");
  return {ids.begin(), ids.end()};
}

// Of the prompts that a case of many holds.
std::vector<std::string> CaseRun::prefixes() const {
  std::vector<std::string> found;
  for (const StoredTensor& stored : file_.tensors()) {
    if (stored.name.ends_with(".tokens")) {
      found.push_back(stored.name.substr(0, stored.name.size() - 6));
    }
  }
  return found;
}

// The prompt's position of each row of logits.
Result<std::vector<int64_t>> CaseRun::positions(int64_t n) const {
  std::vector<int64_t> rows;
  if (file_.find("positions") == nullptr) {
    for (int64_t p = 0; p < n; ++p) rows.push_back(p);
  } else {
    for (const double p : numbers("positions")) rows.push_back(static_cast<int64_t>(p));
  }
  for (const int64_t p : rows) {
    if (p >= 0 && p < n) continue;
    return wrong("positions",
                 "wanted 0 to " + std::to_string(n - 1) + ", found " + std::to_string(p));
  }
  const int64_t n_logits = file_.get("logits")->dim(0);
  if (n_logits != static_cast<int64_t>(rows.size())) {
    return wrong("logits", "wanted " + std::to_string(rows.size()) + " rows, found " +
                               std::to_string(n_logits));
  }
  return rows;
}

Result<std::vector<uint8_t>> CaseRun::image(int64_t n) const {
  std::vector<uint8_t> mask;
  if (file_.find("token_types") == nullptr) return mask;
  for (const double type : numbers("token_types")) mask.push_back(type >= 0 ? 1 : 0);
  if (static_cast<int64_t>(mask.size()) == n) return mask;
  return wrong("token_types",
               "wanted " + std::to_string(n) + " types, found " + std::to_string(mask.size()));
}

// Every stored prompt has ids and logits of the model's vocabulary.
Result<void> CaseRun::check_prompts() const {
  int64_t n_prompts = 0;
  for (const StoredTensor& stored : file_.tensors()) {
    if (stored.name != "tokens" && !stored.name.ends_with(".tokens")) continue;
    ++n_prompts;
    FATHOM_RETURN_IF_ERROR(check_prompt(stored));
  }
  if (n_prompts == 0) return wrong("tokens", "wanted prompts, found none");
  return {};
}

Result<void> CaseRun::check_prompt(const StoredTensor& stored) const {
  if (stored.view.dtype != DType::kI32 || stored.view.elements() == 0) {
    return wrong(stored.name,
                 "wanted I32 ids, found " +
                     describe_tensor(stored.view.dtype, {stored.view.shape.data(),
                                                         static_cast<size_t>(stored.view.rank)}));
  }
  if (compare_.name().starts_with("decode_full")) return {};
  const int64_t vocab_size = model_.config().text_config.vocab_size;
  const std::string name = stored.name.substr(0, stored.name.size() - 6) + "logits";
  const StoredTensor* logits = file_.find(name);
  const bool one_row = compare_.name().starts_with("prefill");
  if (logits == nullptr || logits->view.elements() == 0 ||
      logits->view.dim(logits->view.rank - 1) != vocab_size ||
      (logits->view.rank != 2 && !(one_row && logits->view.rank == 1))) {
    return wrong(name, "wanted rows of " + std::to_string(vocab_size) + " values, found " +
                           (logits == nullptr ? "none" : shape_text(logits->view)));
  }
  const int64_t n_rows = logits->view.elements() / vocab_size;
  if (n_rows > stored.view.elements()) {
    return wrong(name, "wanted at most a row a token, found " + std::to_string(n_rows) +
                           " rows and " + std::to_string(stored.view.elements()) + " tokens");
  }
  return {};
}

Result<void> CaseRun::run() {
  FATHOM_RETURN_IF_ERROR(check_prompts());
  const CaseKind kind = case_kind(compare_.name(), file_.find("tokens") != nullptr);
  check_names(kind);
  compare_.count_ties();
  switch (kind) {
    case CaseKind::kPrompt:
      return run_prompt();
    case CaseKind::kLengths:
      return run_lengths();
    case CaseKind::kDecode:
      return run_decode();
    case CaseKind::kDecodeFull:
      return run_decode_full();
    case CaseKind::kReplay:
      return run_replays();
  }
  return {};
}

// What is stored under another name would be compared with nothing.
void CaseRun::check_names(CaseKind kind) {
  const int64_t n_layers = model_.config().text_config.num_hidden_layers;
  for (const StoredTensor& stored : file_.tensors()) {
    const bool many = kind == CaseKind::kLengths || kind == CaseKind::kReplay;
    const std::string prompt = stored.name.substr(0, stored.name.find('.')) + ".tokens";
    const bool met = !many || file_.find(prompt) != nullptr;
    if (met && is_case_name(kind, stored.name, n_layers)) continue;
    compare_.fail(printable(stored.name), "wanted a name that such a case has for a model of " +
                                              std::to_string(n_layers) + " layers, found another");
  }
}

// short, masked, long: a prompt with logits at all or at chosen positions.
Result<void> CaseRun::run_prompt() {
  const std::vector<int32_t> ids = tokens();
  const auto n = static_cast<int64_t>(ids.size());
  FATHOM_ASSIGN_OR_RETURN(const std::vector<int64_t> rows, positions(n));
  FATHOM_ASSIGN_OR_RETURN(const std::vector<uint8_t> mask, image(n));
  FATHOM_ASSIGN_OR_RETURN(const auto runner, make_runner(Schedule::kExact, n));
  FATHOM_ASSIGN_OR_RETURN(Sequence sequence, runner->open());
  FATHOM_RETURN_IF_ERROR(runner->append(sequence, ids, mask));
  ops_.set_probe(&probe_);
  const StepItem item = {.sequence = &sequence, .n_rows = n, .want = WantLogits::kAll};
  const Result<Tensor> logits = runner->step({&item, 1});
  ops_.set_probe(nullptr);
  if (!logits) return logits.error();
  compare_prompt_logits(*logits, rows);
  compare_map();
  runner->close(sequence);
  const bool whole = file_.find("L00.out") != nullptr;
  return whole ? force_layers(*runner) : Result<void>();
}

void CaseRun::compare_prompt_logits(const Tensor& logits, const std::vector<int64_t>& positions) {
  const Numbers got = to_numbers(logits);
  const Numbers want = numbers("logits");
  const int64_t width = logits.dim(1);
  const auto n_rows = static_cast<int64_t>(positions.size());
  const bool is_long = compare_.name().starts_with("long");
  const bool whole = file_.find("L00.out") != nullptr;  // its layers are compared one by one
  double square = 0;
  int64_t n_other = 0;
  for (int64_t i = 0; i < n_rows; ++i) {
    const int64_t row = positions[static_cast<size_t>(i)];
    const Numbers ours = row_of(got, row, width);
    const Numbers theirs = row_of(want, i, width);
    for (size_t c = 0; c < ours.size(); ++c) square += std::pow(ours[c] - theirs[c], 2);
    n_other += std::ranges::max_element(ours) - ours.begin() !=
               std::ranges::max_element(theirs) - theirs.begin();
    const double difference = largest_difference(ours, theirs);
    if (!is_long) compare_.note("logits", difference, compare_.bounds().logits(compare_.name()));
    if (difference > kAgree || whole) continue;
    compare_.row("", probe_.values(),
                 {.stored = i, .n_stored = n_rows, .shown = row, .n_shown = logits.dim(0)});
  }
  if (!is_long) return;
  compare_.note("logits (rms)", std::sqrt(square / static_cast<double>(want.size())),
                compare_.bounds().logits_rms(compare_.name()));
  // 3 of 20
  compare_.note("logits (rows of another arg-max)", static_cast<double>(n_other),
                std::floor(0.15 * static_cast<double>(n_rows) + 1e-9));
}

// The canonical ids of the prompt's tokens, which no kernel computes.
void CaseRun::compare_map() {
  if (file_.find("engram.mapped_ids") == nullptr) return;
  Numbers mapped;
  const std::span<const int32_t> map = model_.token_map();
  for (const int32_t id : tokens()) {
    mapped.push_back(map.empty() ? id : map[static_cast<size_t>(id)]);
  }
  compare_.values("engram.mapped_ids", mapped, numbers("engram.mapped_ids"), {.fraction = 0});
}

// Starts every layer from the stored output of the one before.
Result<void> CaseRun::force_layers(Runner& runner) {
  FATHOM_ASSIGN_OR_RETURN(Sequence sequence, runner.open());
  FATHOM_RETURN_IF_ERROR(runner.append(sequence, tokens()));
  FATHOM_RETURN_IF_ERROR(forced_step(runner, sequence, ""));
  compare_.layers("", probe_.values(), false);
  runner.close(sequence);
  return {};
}

Result<void> CaseRun::forced_step(Runner& runner, Sequence& sequence, const std::string& prefix) {
  CollectingProbe probe([](const std::string&) { return true; });
  for (const StoredTensor& stored : file_.tensors()) {
    if (!stored.name.starts_with(prefix)) continue;
    const std::string name = stored.name.substr(prefix.size());
    if (is_layer_input(name)) probe.force(name, stored.view);
  }
  FATHOM_RETURN_IF_ERROR(probed(runner, sequence, probe));
  for (const std::string& name : probe.misfits()) {
    compare_.fail(prefix + name, "wanted as many values as the engine has, found others");
  }
  probe_ = std::move(probe);
  return {};
}

// prefill: many prompts, the last position of each.
Result<void> CaseRun::run_lengths() {
  int64_t n_flipped = 0;
  for (const std::string& prefix : prefixes()) {
    FATHOM_RETURN_IF_ERROR(run_length(prefix, &n_flipped));
  }
  return {};
}

Result<void> CaseRun::run_length(const std::string& prefix, int64_t* n_flipped) {
  const std::vector<int32_t> ids = tokens(prefix);
  const auto n = static_cast<int64_t>(ids.size());
  FATHOM_ASSIGN_OR_RETURN(const auto runner, make_runner(Schedule::kExact, n));
  FATHOM_ASSIGN_OR_RETURN(Sequence sequence, runner->open());
  FATHOM_RETURN_IF_ERROR(runner->append(sequence, ids));
  FATHOM_ASSIGN_OR_RETURN(const Tensor logits, probed(*runner, sequence, probe_));
  const Numbers want = numbers(prefix + "logits");
  const Numbers got = to_numbers(logits);
  if (want.size() != got.size()) {
    return wrong(prefix + "logits",
                 "wanted one row, found " + shape_text(*file_.get(prefix + "logits")));
  }
  const double difference = largest_difference(got, want);
  const double bound = compare_.bounds().logits(compare_.name(), std::to_string(n));
  if (difference <= kAgree) {
    compare_.row(prefix, probe_.values(), {.shown = n - 1, .n_shown = n});
  }
  // One prompt may have met a flipped code: rounding noise, when it is small.
  const bool flipped = difference > bound && difference < 0.5 && (*n_flipped)++ == 0;
  compare_.note(prefix + "logits", difference, flipped ? 0.5 : bound);
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
    FATHOM_ASSIGN_OR_RETURN(const Tensor logits, probed(*runner, sequence, probe_));
    const double difference =
        largest_difference(to_numbers(logits), row_of(want, i, stored.dim(1)));
    compare_.note("logits", difference, compare_.bounds().logits(compare_.name()));
    if (i == 0 || difference > kAgree) continue;
    compare_.row("", probe_.values(), {.stored = i - 1, .n_stored = steps});
  }
  runner->close(sequence);
  return {};
}

// Single steps after a prompt, each layer started from stored inputs.
Result<void> CaseRun::run_decode_full() {
  std::set<int64_t> positions;
  for (const StoredTensor& stored : file_.tensors()) {
    const std::optional<int64_t> position = number_behind(stored.name, "pos");
    if (position) positions.insert(*position);
  }
  const std::vector<int32_t> ids = tokens();
  const auto n = static_cast<int64_t>(ids.size());
  if (positions.empty() || *positions.rbegin() >= n) {
    return wrong("tokens", "wanted one for every stored position, found " + std::to_string(n));
  }
  FATHOM_ASSIGN_OR_RETURN(const auto runner, make_runner(Schedule::kExact, n));
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
    FATHOM_RETURN_IF_ERROR(forced_step(*runner, sequence, prefix));
    compare_.layers(prefix, probe_.values(), true);
  }
  return {};
}

Result<void> CaseRun::run_replays() {
  for (const std::string& prefix : prefixes()) {
    FATHOM_RETURN_IF_ERROR(run_replay(prefix, "logits", Schedule::kDeploy));
    const StoredTensor* exact = file_.find(prefix + "logits_exact");
    if (exact == nullptr) continue;
    if (shape_text(exact->view) != shape_text(*file_.get(prefix + "logits"))) {
      return wrong(exact->name, "wanted the shape of logits, found " + shape_text(exact->view));
    }
    FATHOM_RETURN_IF_ERROR(run_replay(prefix, "logits_exact", Schedule::kExact));
  }
  return {};
}

// A prompt and the steps behind it. Decoder replay: the decoder saw its last window only.
Result<void> CaseRun::run_replay(const std::string& prefix, const std::string& name,
                                 Schedule schedule) {
  const std::vector<int32_t> ids = tokens(prefix);
  const Tensor stored = *file_.get(prefix + name);
  const Numbers want = to_numbers(stored);
  const auto n = static_cast<int64_t>(ids.size());
  const int64_t prompt = n - (stored.dim(0) - 1);
  const int64_t n_decoder = std::min(prompt, model_.config().text_config.sliding_window);
  FATHOM_ASSIGN_OR_RETURN(const auto runner, make_runner(schedule, n));
  FATHOM_ASSIGN_OR_RETURN(Sequence sequence, runner->open());
  FATHOM_RETURN_IF_ERROR(
      runner->append(sequence, std::span(ids).first(static_cast<size_t>(prompt))));
  // An exact run of a prompt and steps is what the case `decode` records.
  const double recorded = compare_.bounds().logits(compare_.name(), std::to_string(prompt));
  const double bound = schedule == Schedule::kExact
                           ? std::max(recorded, compare_.bounds().logits("decode"))
                           : recorded;
  for (int64_t i = 0; i < stored.dim(0); ++i) {
    if (i > 0) {
      FATHOM_RETURN_IF_ERROR(
          runner->append(sequence, {&ids[static_cast<size_t>(prompt + i - 1)], 1}));
    }
    FATHOM_ASSIGN_OR_RETURN(const Tensor logits, probed(*runner, sequence, probe_));
    const double difference =
        largest_difference(to_numbers(logits), row_of(want, i, stored.dim(1)));
    compare_.note(prefix + name, difference, bound);
    if (i > 0 || schedule == Schedule::kExact) continue;
    compare_windows(prefix);
    if (difference > kAgree) continue;
    compare_.row(prefix, probe_.values(),
                 {.stored = n_decoder - 1,
                  .n_stored = n_decoder,
                  .shown = n_decoder - 1,
                  .n_shown = n_decoder});
  }
  return {};
}

void CaseRun::compare_windows(const std::string& prefix) {
  for (const StoredTensor& window : file_.tensors()) {
    if (!window.name.starts_with(prefix) || !window.name.ends_with(".window_kv")) continue;
    const std::string inner = window.name.substr(prefix.size());
    const std::string shown = inner.substr(0, inner.find('.')) + ".attn.kv";
    const auto found = probe_.values().find(shown);
    if (found == probe_.values().end()) {
      compare_.fail(window.name, "the engine does not show it");
      continue;
    }
    compare_.values(window.name, found->second, to_numbers(window.view),
                    compare_.bounds().free_running("attn.kv"));
  }
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
    CaseRun run({name, stored, bounds, report}, *loaded.model, ops);
    if (const Result<void> done = run.run(); !done) {
      return Error{done.error().code, file + ": " + done.error().message};
    }
    ++report.cases;
    ++(report.problems.size() == n_problems ? report.passed : report.failed);
    if (options.progress) options.progress(report.cases, static_cast<int64_t>(files.size()));
  }
  return report;
}

}  // namespace fathom
