#include "train/data.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "text/json_text.h"
#include "train/json_fields.h"

namespace fathom::train {

namespace {

// SplitMix64: a stateless mixer, so that any position of the random sequence costs one call.
uint64_t mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

double unit(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

Batch empty_batch(int64_t batch, int64_t length) {
  return {at::empty({batch, length}, at::kLong), at::empty({batch * length}, at::kLong),
          at::empty({batch * length}, at::kFloat)};
}

void fill(Batch& out, int64_t row, const Source& source, int64_t at) {
  const int64_t length = out.tokens.size(1);
  auto* tokens = out.tokens.mutable_data_ptr<int64_t>() + row * length;
  auto* target = out.target.mutable_data_ptr<int64_t>() + row * length;
  auto* weight = out.weight.mutable_data_ptr<float>() + row * length;
  const uint16_t* ids = source.ids() + at;
  for (int64_t i = 0; i < length; ++i) {
    tokens[i] = ids[i];
    target[i] = ids[i + 1];
    weight[i] = static_cast<float>(source.weight(at + i + 1));
  }
}

Result<Source> open_source(const std::string& folder, const Json& entry) {
  const std::string name = text_field(entry, "name");
  const std::string path = folder + "/" + text_field(entry, "tokens");
  if (name.empty()) {
    return invalid(folder + "/index.json: a source has no name");
  }
  FATHOM_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  Source source{name,
                text_field(entry, "kind"),
                int_field(entry, "row"),
                static_cast<uint64_t>(int_field(entry, "bytes")),
                std::move(file),
                std::nullopt};
  if (source.size() != int_field(entry, "n_tokens")) {
    return invalid(path + ": " + std::to_string(source.size()) + " tokens, expected " +
                   std::to_string(int_field(entry, "n_tokens")));
  }
  const std::string weights = text_field(entry, "weights");
  if (!weights.empty()) {
    FATHOM_ASSIGN_OR_RETURN(MappedFile side, MappedFile::open(folder + "/" + weights));
    if (static_cast<int64_t>(side.bytes().size()) != source.size()) {
      return invalid(folder + "/" + weights + ": " + std::to_string(side.bytes().size()) +
                     " weights, expected " + std::to_string(source.size()));
    }
    source.weights = std::move(side);
  }
  return source;
}

// Sources of a kind that a sequence of `length` tokens and its target can be cut from.
std::vector<const Source*> usable(const std::vector<Source>& sources, const std::string& kind,
                                  int64_t length) {
  int64_t row = 0;
  for (const Source& source : sources) {
    const bool fits = source.kind == kind && source.row <= length + 1;
    row = fits ? std::max(row, source.row) : row;
  }
  std::vector<const Source*> out;
  for (const Source& source : sources) {
    if (source.kind == kind && source.row == row && source.size() > length + 1) {
      out.push_back(&source);
    }
  }
  return out;
}

// A place to cut; one mixer call a choice.
int64_t place(const Source& source, int64_t length, uint64_t bits) {
  const int64_t room = source.size() - length - 1;
  if (source.row == 0) {
    return static_cast<int64_t>(bits % static_cast<uint64_t>(room + 1));
  }
  return static_cast<int64_t>(bits % static_cast<uint64_t>(room / source.row + 1)) * source.row;
}

}  // namespace

Result<Dataset> Dataset::open(const std::string& folder) {
  FATHOM_ASSIGN_OR_RETURN(const std::string text, read_file(folder + "/index.json"));
  FATHOM_ASSIGN_OR_RETURN(const Json index, parse_json(text));
  const Json* sources = index.find("sources");
  if (sources == nullptr || sources->as_array() == nullptr) {
    return invalid(folder + "/index.json: sources: wanted a list, found none");
  }
  Dataset out;
  out.folder_ = folder;
  for (const Json& entry : *sources->as_array()) {
    FATHOM_ASSIGN_OR_RETURN(Source source, open_source(folder, entry));
    const bool held = text_field(entry, "split") == "heldout";
    (held ? out.heldout_ : out.train_).push_back(std::move(source));
  }
  return out;
}

Batch Dataset::sample(uint64_t seed, uint64_t step, at::IntArrayRef shape, const Mix& mix) const {
  const int64_t length = shape[1];
  struct Choice {
    double share;
    std::vector<const Source*> sources;
    int64_t tokens = 0;
  };
  std::vector<Choice> choices;
  double total = 0;
  for (const auto& [kind, share] : mix) {
    Choice choice{share, usable(train_, kind, length)};
    for (const Source* source : choice.sources) {
      choice.tokens += source->size();
    }
    if (!choice.sources.empty() && share > 0) {
      total += share;
      choices.push_back(std::move(choice));
    }
  }
  FATHOM_CHECK(!choices.empty());
  Batch out = empty_batch(shape[0], length);
  for (int64_t row = 0; row < shape[0]; ++row) {
    uint64_t state = mix64(mix64(mix64(seed) ^ step) ^ static_cast<uint64_t>(row));
    double pick = unit(state) * total;
    size_t which = 0;
    while (which + 1 < choices.size() && pick >= choices[which].share) {
      pick -= choices[which++].share;
    }
    const Choice& choice = choices[which];
    state = mix64(state);
    auto at = static_cast<int64_t>(state % static_cast<uint64_t>(choice.tokens));
    size_t source = 0;
    while (at >= choice.sources[source]->size()) {
      at -= choice.sources[source++]->size();
    }
    state = mix64(state);
    fill(out, row, *choice.sources[source], place(*choice.sources[source], length, state));
  }
  return out;
}

bool Dataset::has(const std::string& kind, int64_t length) const {
  return !usable(train_, kind, length).empty();
}

Batch Dataset::slice(const Source& source, int64_t batch, int64_t length) {
  const int64_t rows = std::min(batch, (source.size() - 1) / length);
  Batch out = empty_batch(rows, length);
  for (int64_t row = 0; row < rows; ++row) {
    fill(out, row, source, row * length);
  }
  return out;
}

Result<at::Tensor> Dataset::engram_map(int64_t vocab) const {
  const std::string path = folder_ + "/engram_map.i32";
  if (!std::filesystem::exists(path)) {
    return at::arange(vocab, at::kLong);
  }
  FATHOM_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  if (text.size() != static_cast<size_t>(vocab) * 4) {
    return invalid(path + ": " + std::to_string(text.size() / 4) + " entries, expected " +
                   std::to_string(vocab));
  }
  at::Tensor map = at::empty({vocab}, at::kInt);
  std::memcpy(map.mutable_data_ptr(), text.data(), text.size());
  return map.to(at::kLong);
}

}  // namespace fathom::train
