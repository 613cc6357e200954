#include "train/recipe.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>

#include "base/file.h"

namespace fathom::train {

namespace {

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  const size_t end = text.find_last_not_of(" \t\r");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

std::string without_comment(const std::string& line) {
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    quoted ^= line[i] == '"';
    if (line[i] == '#' && !quoted) {
      return line.substr(0, i);
    }
  }
  return line;
}

bool read_number(const std::string& text, double& out) {
  char* end = nullptr;
  out = std::strtod(text.c_str(), &end);
  return end != text.c_str() && *end == 0;
}

bool read_list(const std::string& text, std::vector<double>& out) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') {
    return false;
  }
  out.clear();
  std::stringstream items(text.substr(1, text.size() - 2));
  for (std::string item; std::getline(items, item, ',');) {
    double value = 0;
    if (!read_number(trimmed(item), value)) {
      return false;
    }
    out.push_back(value);
  }
  return !out.empty();
}

bool read_text(const std::string& text, std::string& out) {
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') {
    return false;
  }
  out = text.substr(1, text.size() - 2);
  return true;
}

using Setter = std::function<bool(const std::string&)>;

// Every key of a recipe and where it goes.
class Keys {
 public:
  explicit Keys(Recipe& r) {
    text("config", r.config);
    integer("seed", r.seed);
    integer("steps", r.steps);
    real("seconds", r.seconds);
    integer("batch_tokens", r.batch_tokens);
    list("lengths", r.lengths);
    list("length_until", r.length_until);
    real("dense_until", r.dense_until);
    integer("dense_steps", r.dense_steps);
    real("simulate_from", r.simulate_from);
    real("pool_from", r.pool_from);
    flag("activations", r.activations);
    integer("warmup_steps", r.warmup_steps);
    real("constant_until", r.constant_until);
    real("final_factor", r.final_factor);
    real("kl_weight", r.kl_weight);
    real("pool_weight", r.pool_weight);
    flag("indexer_only", r.indexer_only);
    real("bias_step", r.bias_step);
    real("bias_step_final", r.bias_step_final);
    integer("bias_steps", r.bias_steps);
    integer("log_every", r.log_every);
    real("eval_every", r.eval_every);
    integer("eval_tokens", r.eval_tokens);
    integer("final_eval_tokens", r.final_eval_tokens);
    real("checkpoint_every", r.checkpoint_every);
    for (auto& [kind, share] : r.mix) {
      real("mix." + kind, share);
    }
    optimiser(r.optim);
  }

  const Setter* find(const std::string& key) const {
    const auto it = setters_.find(key);
    return it == setters_.end() ? nullptr : &it->second;
  }

 private:
  void optimiser(OptimSettings& o) {
    real("optim.muon_lr", o.muon_lr);
    real("optim.muon_momentum", o.muon_momentum);
    real("optim.muon_decay", o.muon_decay);
    real("optim.embed_lr", o.embed_lr);
    real("optim.embed_decay", o.embed_decay);
    real("optim.table_lr", o.table_lr);
    real("optim.small_lr", o.small_lr);
    real("optim.indexer_lr", o.indexer_lr);
    real("optim.beta1", o.beta1);
    real("optim.beta2", o.beta2);
    real("optim.eps", o.eps);
    real("optim.clip", o.clip);
  }
  void real(const std::string& key, double& out) {
    setters_[key] = [&out](const std::string& text) { return read_number(text, out); };
  }
  template <typename T>
  void integer(const std::string& key, T& out) {
    setters_[key] = [&out](const std::string& text) {
      double value = 0;
      const bool ok = read_number(text, value) && value >= 0;
      out = ok ? static_cast<T>(value) : out;
      return ok;
    };
  }
  void flag(const std::string& key, bool& out) {
    setters_[key] = [&out](const std::string& text) {
      out = text == "true";
      return out || text == "false";
    };
  }
  void text(const std::string& key, std::string& out) {
    setters_[key] = [&out](const std::string& text) { return read_text(text, out); };
  }
  void list(const std::string& key, std::vector<double>& out) {
    setters_[key] = [&out](const std::string& text) { return read_list(text, out); };
  }

  std::map<std::string, Setter> setters_;
};

}  // namespace

Result<Recipe> parse_recipe(const std::string& text) {
  Recipe recipe;
  const Keys keys(recipe);
  std::stringstream lines(text);
  std::string section;
  int number = 0;
  for (std::string raw; std::getline(lines, raw);) {
    ++number;
    const std::string line = trimmed(without_comment(raw));
    if (line.empty()) {
      continue;
    }
    if (line.front() == '[' && line.back() == ']') {
      section = line.substr(1, line.size() - 2) + ".";
      continue;
    }
    const size_t equals = line.find('=');
    const std::string key = section + trimmed(line.substr(0, std::min(equals, line.size())));
    const Setter* setter = equals == std::string::npos ? nullptr : keys.find(key);
    if (setter == nullptr || !(*setter)(trimmed(line.substr(equals + 1)))) {
      return invalid("recipe line " + std::to_string(number) + ": cannot use `" + line + "`");
    }
  }
  if (recipe.lengths.size() != recipe.length_until.size()) {
    return invalid("recipe: lengths has " + std::to_string(recipe.lengths.size()) +
                   " entries, length_until " + std::to_string(recipe.length_until.size()));
  }
  return recipe;
}

Result<Recipe> load_recipe(const std::string& path) {
  FATHOM_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  FATHOM_ASSIGN_OR_RETURN(Recipe recipe, parse_recipe(text));
  const size_t slash = path.rfind('/');
  if (slash != std::string::npos && recipe.config.front() != '/') {
    recipe.config = path.substr(0, slash + 1) + recipe.config;
  }
  return recipe;
}

double schedule_factor(const Recipe& recipe, int64_t step, double progress) {
  double factor = 1;
  if (progress > recipe.constant_until) {
    const double left = (1 - std::min(1.0, progress)) / (1 - recipe.constant_until);
    factor = recipe.final_factor + (1 - recipe.final_factor) * left;
  }
  const auto warm = static_cast<double>(step + 1) / static_cast<double>(recipe.warmup_steps + 1);
  return factor * std::min(1.0, warm);
}

int64_t length_at(const Recipe& recipe, double progress) {
  size_t i = 0;
  while (i + 1 < recipe.lengths.size() && progress >= recipe.length_until[i]) {
    ++i;
  }
  return static_cast<int64_t>(recipe.lengths[i]);
}

}  // namespace fathom::train
