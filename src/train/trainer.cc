#include "train/trainer.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <sstream>

#include "base/file.h"
#include "text/json_text.h"
#include "train/export.h"
#include "train/json_fields.h"

namespace fathom::train {

namespace {

double now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

void append_raw(std::string& out, const Tensor& value) {
  const Tensor flat = value.to(at::kCPU).to(at::kFloat).contiguous();
  out.append(static_cast<const char*>(flat.const_data_ptr()), flat.numel() * sizeof(float));
}

}  // namespace

Trainer::Trainer(const Recipe& recipe, Dataset data, std::string out)
    : recipe_(recipe), data_(std::move(data)), out_(std::move(out)) {}

Result<std::unique_ptr<Trainer>> Trainer::create(const Recipe& recipe, Dataset data,
                                                 const std::string& out, const at::Device& device,
                                                 ParamTypes types) {
  FATHOM_ASSIGN_OR_RETURN(const ConfigFile file, read_config(recipe.config));
  ModelConfig config = file.config;
  TextConfig& text = config.text_config;
  FATHOM_ASSIGN_OR_RETURN(const Tensor map, data.engram_map(text.vocab_size));
  text.engram_compressed_vocab_size = map.max().item<int64_t>() + 1;
  for (const double length : recipe.lengths) {
    if (length > static_cast<double>(text.max_position_embeddings)) {
      return invalid("recipe: a length is above max_position_embeddings of the configuration");
    }
    for (const auto& [kind, share] : recipe.mix) {
      if (share > 0 && !data.has(kind, static_cast<int64_t>(length))) {
        return invalid("data: no training source of kind " + kind + " has a sequence of " +
                       std::to_string(static_cast<int64_t>(length)) + " tokens");
      }
    }
  }
  std::unique_ptr<Trainer> self(new Trainer(recipe, std::move(data), out));
  self->device_ = device;
  self->params_ = std::make_unique<Params>(config, types, device);
  self->params_->init(text, recipe.seed);
  self->model_ = std::make_unique<Model>(config, *self->params_, map);
  self->optimiser_ = std::make_unique<Optimiser>(*self->params_, recipe.optim);
  if (recipe.indexer_only) self->params_->train_only(Group::kIndexer);
  std::filesystem::create_directories(out);
  if (std::filesystem::exists(self->checkpoint_path())) {
    FATHOM_RETURN_IF_ERROR(self->restore());
  }
  FATHOM_RETURN_IF_ERROR(write_file_atomic(out + "/config.json", config_to_json(config)));
  return self;
}

Result<void> Trainer::start_from(const std::string& model) {
  FATHOM_RETURN_IF_ERROR(import_model(*model_, *params_, model));
  params_->sync(simulating());
  return {};
}

double Trainer::progress() const {
  return recipe_.steps > 0 ? static_cast<double>(step_) / static_cast<double>(recipe_.steps)
                           : clock_ / recipe_.seconds;
}

Numerics Trainer::numerics(bool quantised) const {
  Numerics n;
  n.cache = quantised;
  n.activations = quantised && recipe_.activations;
  n.dense = progress() < recipe_.dense_until && step_ < recipe_.dense_steps;
  n.pool = progress() >= recipe_.pool_from;
  return n;
}

void Trainer::balance() {
  const at::NoGradGuard no_grad;
  const double part =
      std::min(1.0, static_cast<double>(step_) /
                        std::max<double>(1, static_cast<double>(recipe_.bias_steps)));
  const double size = recipe_.bias_step + (recipe_.bias_step_final - recipe_.bias_step) * part;
  const Tensor& load = model_->load();
  model_->route_bias().add_((load.mean(1, true) - load).sign(), size);
}

void Trainer::one_step() {
  const double begin = now();
  const int64_t length = length_at(recipe_, progress());
  const int64_t rows = std::max<int64_t>(1, recipe_.batch_tokens / length);
  const Batch batch =
      data_.sample(recipe_.seed, static_cast<uint64_t>(step_), {rows, length}, recipe_.mix);
  Numerics mode = numerics(simulating());
  mode.index_loss = true;
  mode.pool_weight = recipe_.pool_weight;
  const bool report_now = step_ % recipe_.log_every == 0;
  mode.index_stats = report_now;
  model_->load().zero_();
  params_->zero_grad();
  Measures measures;
  const Tensor x = model_->run(batch.tokens.to(device_), mode, &measures);
  Tensor nll;
  const Tensor weight = (batch.weight / batch.weight.sum()).to(device_);
  const Tensor ce = cross_entropy(x, params_->get("head"), batch.target.to(device_), weight, nll);
  const Tensor loss = measures.index_kl.defined()
                          ? ce + measures.index_kl.to(ce.scalar_type()) * recipe_.kl_weight
                          : ce;
  torch::autograd::backward({loss}, {});
  const StepReport report =
      optimiser_->step(schedule_factor(recipe_, step_, progress()), recipe_.indexer_only);
  if (report.skipped) {
    ++skipped_;
    if (!silent_) std::fprintf(stderr, "step %ld skipped: a gradient is not finite\n", step_);
  } else if (!recipe_.indexer_only) {
    balance();
  }
  tokens_ += rows * length;
  const bool log_it = report_now;
  clock_ += now() - begin;
  ++step_;
  params_->sync(simulating());
  if (log_it) {
    loss_ = ce.item<double>();
    log(measures, report, loss_);
  }
}

void Trainer::log(const Measures& measures, const StepReport& report, double ce) {
  const double speed =
      static_cast<double>(tokens_ - log_tokens_) / std::max(1e-9, clock_ - log_clock_);
  log_clock_ = clock_;
  log_tokens_ = tokens_;
  const Tensor share = model_->load() / model_->load().mean(1, true).clamp_min(1);
  const auto text = [](const std::map<int64_t, Tensor>& values) {
    std::string out;
    for (const auto& [layer, value] : values) {
      char buffer[24];
      std::snprintf(buffer, sizeof buffer, "%s%.2f", out.empty() ? "" : "/", value.item<double>());
      out += buffer;
    }
    return out;
  };
  const double left = recipe_.steps > 0 ? 0 : recipe_.seconds - clock_;
  const std::string kl = text(measures.kl);
  const std::string recall = text(measures.recall);
  const std::string mass = text(measures.mass);
  const std::string pool = text(measures.pool);
  const double low = share.min().item<double>();
  const double high = share.max().item<double>();
  if (!silent_) {
    std::fprintf(stderr,
                 "step %5ld  %5.1f Mtok  loss %.4f  norm %.2f/%.2f  load %.2f-%.2f  kl %s  recall "
                 "%s  mass %s  pool %s"
                 "  %.0f tok/s  left %.0f s\n",
                 step_, static_cast<double>(tokens_) / 1e6, ce, report.norm, report.indexer_norm,
                 low, high, kl.c_str(), recall.c_str(), mass.c_str(), pool.c_str(), speed, left);
  }
  std::ofstream csv(out_ + "/log.csv", std::ios::app);
  if (csv.tellp() == 0) {
    csv << "step,clock,tokens,length,loss,norm,indexer_norm,load_min,load_max,kl,recall,mass,pool,"
           "tokens_per_s,skipped\n";
  }
  csv << step_ << ',' << clock_ << ',' << tokens_ << ',' << length_at(recipe_, progress()) << ','
      << ce << ',' << report.norm << ',' << report.indexer_norm << ',' << low << ',' << high << ','
      << kl << ',' << recall << ',' << mass << ',' << pool << ',' << speed << ',' << skipped_
      << '\n';
}

Result<void> Trainer::run(double limit) {
  const double begin = now();
  double next_eval = clock_ + recipe_.eval_every;
  double next_save = now() + recipe_.checkpoint_every;
  while (!finished() && now() - begin < limit) {
    one_step();
    if (watcher_) {
      watcher_(progress());
    }
    if (recipe_.eval_every > 0 && clock_ >= next_eval) {
      next_eval = clock_ + recipe_.eval_every;
      print_scores(evaluate(recipe_.eval_tokens, simulating()), simulating() ? "packed" : "bf16");
    }
    if (now() >= next_save) {
      next_save = now() + recipe_.checkpoint_every;
      FATHOM_RETURN_IF_ERROR(save());
    }
  }
  return save();
}

std::vector<Score> Trainer::evaluate(int64_t tokens, bool quantised) {
  const at::NoGradGuard no_grad;
  const int64_t length = length_at(recipe_, progress());
  params_->sync(quantised);
  std::vector<Score> scores;
  const Tensor load = model_->load().clone();
  for (const Source& source : data_.heldout()) {
    const int64_t rows = std::max<int64_t>(1, recipe_.batch_tokens / length);
    const int64_t total = std::max<int64_t>(1, tokens / length);
    const Batch all = Dataset::slice(source, total, length);
    double sum = 0;
    double answers = 0;
    double answer_count = 0;
    for (int64_t at = 0; at < all.tokens.size(0); at += rows) {
      const int64_t count = std::min(rows, all.tokens.size(0) - at);
      const Tensor x =
          model_->run(all.tokens.narrow(0, at, count).to(device_), numerics(quantised));
      const Tensor weight = all.weight.narrow(0, at * length, count * length).to(device_);
      Tensor nll;
      const Tensor target = all.target.narrow(0, at * length, count * length).to(device_);
      cross_entropy(x, params_->get("head"), target, weight, nll);
      const Tensor asked = weight.gt(1).to(nll.scalar_type());
      sum += nll.sum().item<double>();
      answers += (nll * asked).sum().item<double>();
      answer_count += asked.sum().item<double>();
    }
    Score score;
    score.name = source.name;
    score.tokens = all.tokens.numel();
    const double per_byte =
        static_cast<double>(source.size()) / std::max<double>(1, static_cast<double>(source.bytes));
    score.bits_per_byte =
        sum / std::max<double>(1, static_cast<double>(score.tokens)) / std::log(2.0) * per_byte;
    score.answer_nll = answer_count > 0 ? answers / answer_count : 0;
    scores.push_back(score);
  }
  model_->load().copy_(load);
  params_->sync(simulating());
  return scores;
}

void Trainer::print_scores(const std::vector<Score>& scores, const char* mode) const {
  std::ofstream csv(out_ + "/eval.csv", std::ios::app);
  std::ostringstream line;
  line << "eval " << mode << " step " << step_ << " clock " << std::llround(clock_) << ':'
       << std::fixed;
  for (const Score& score : scores) {
    line << "  " << score.name << ' ' << std::setprecision(4) << score.bits_per_byte;
    if (score.answer_nll > 0) {
      line << " (answers " << std::setprecision(3) << score.answer_nll << ')';
    }
    csv << step_ << ',' << clock_ << ',' << mode << ',' << score.name << ',' << score.tokens << ','
        << score.bits_per_byte << ',' << score.answer_nll << '\n';
  }
  if (!silent_) std::fprintf(stderr, "%s\n", line.str().c_str());
}

// checkpoint.bin: one line of JSON, then master, first and second moments and the router biases as
// raw fp32.
Result<void> Trainer::save() const {
  char header[256];
  std::snprintf(header, sizeof header,
                "{\"format\": 1, \"count\": %ld, \"step\": %ld, \"clock\": %.17g, \"tokens\": %ld, "
                "\"skipped\": %ld, \"updates\": %ld}\n",
                params_->master().numel(), step_, clock_, tokens_, skipped_, optimiser_->updates());
  std::string out = header;
  append_raw(out, params_->master());
  append_raw(out, optimiser_->first());
  append_raw(out, optimiser_->second());
  append_raw(out, model_->route_bias());
  return write_file_atomic(checkpoint_path(), out);
}

Result<void> Trainer::restore() {
  FATHOM_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(checkpoint_path()));
  const auto* begin = reinterpret_cast<const char*>(file.bytes().data());
  const auto* line = static_cast<const char*>(std::memchr(begin, '\n', file.bytes().size()));
  if (line == nullptr) {
    return invalid(checkpoint_path() + ": no header line");
  }
  FATHOM_ASSIGN_OR_RETURN(const Json header, parse_json(std::string_view(begin, line - begin)));
  const int64_t count = params_->master().numel();
  const int64_t biases = model_->route_bias().numel();
  const auto wanted = static_cast<size_t>(line + 1 - begin + 4 * (3 * count + biases));
  if (int_field(header, "count") != count || file.bytes().size() != wanted) {
    return invalid(checkpoint_path() +
                   ": holds another model: " + std::to_string(file.bytes().size()) +
                   " bytes, expected " + std::to_string(wanted));
  }
  const char* at = line + 1;
  const auto load = [&](Tensor& out) {
    Tensor host = at::empty({out.numel()}, at::kFloat);
    std::memcpy(host.mutable_data_ptr(), at, out.numel() * sizeof(float));
    at += out.numel() * sizeof(float);
    out.copy_(host.view(out.sizes()));
  };
  const at::NoGradGuard no_grad;
  load(params_->master());
  load(optimiser_->first());
  load(optimiser_->second());
  load(model_->route_bias());
  step_ = int_field(header, "step");
  clock_ = real_field(header, "clock");
  tokens_ = int_field(header, "tokens");
  skipped_ = int_field(header, "skipped");
  optimiser_->updates() = int_field(header, "updates");
  log_clock_ = clock_;
  log_tokens_ = tokens_;
  params_->sync(simulating());
  return {};
}

}  // namespace fathom::train
