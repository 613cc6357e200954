#include "case_writer.h"

#include <boost/json.hpp>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "engine/runner.h"
#include "ops/probe.h"

namespace fathom {
namespace {

namespace json = boost::json;

// A tensor with bytes of its own.
struct Kept {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::string bytes;

  static Kept of(const Tensor& t) {
    return {t.dtype,
            {t.shape.begin(), t.shape.begin() + t.rank},
            std::string(static_cast<const char*>(t.data), static_cast<size_t>(t.bytes()))};
  }
  static Kept ids(const std::vector<int32_t>& ids) {
    return {DType::kI32,
            {static_cast<int64_t>(ids.size())},
            std::string(reinterpret_cast<const char*>(ids.data()), 4 * ids.size())};
  }
  int64_t row_bytes() const { return static_cast<int64_t>(bytes.size()) / shape[0]; }
  // The last rows as a tensor of as many dimensions, or of one less for a single row.
  Kept last_row() const {
    const auto n = static_cast<size_t>(row_bytes());
    return {dtype, {shape.begin() + 1, shape.end()}, bytes.substr(bytes.size() - n)};
  }
};

using CaseFile = std::map<std::string, Kept>;

// Hash rows are 64-bit in the engine and I32 in the files.
Kept narrowed(const Kept& wide) {
  std::vector<int32_t> ids(wide.bytes.size() / 8);
  for (size_t i = 0; i < ids.size(); ++i) {
    int64_t id = 0;
    std::memcpy(&id, wide.bytes.data() + 8 * i, 8);
    ids[i] = static_cast<int32_t>(id);
  }
  Kept kept = Kept::ids(ids);
  kept.shape = wide.shape;
  return kept;
}

class KeepingProbe final : public Probe {
 public:
  void value(const std::string& name, const Tensor& tensor) override {
    const bool wanted = name.starts_with("L") || name == "head.x" || name == "head.u";
    if (!wanted || tensor.elements() == 0) return;
    const Kept kept = Kept::of(tensor);
    seen_[name] = kept.dtype == DType::kI64 ? narrowed(kept) : kept;
  }
  CaseFile take() { return std::exchange(seen_, {}); }

 private:
  CaseFile seen_;
};

void write_file(const std::string& path, const CaseFile& file) {
  json::object header;
  std::string data;
  for (const auto& [name, kept] : file) {
    const size_t begin = data.size();
    data += kept.bytes;
    header[name] = json::object{{"dtype", std::string(dtype_name(kept.dtype))},
                                {"shape", json::value_from(kept.shape)},
                                {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = json::serialize(header);
  const uint64_t length = text.size();
  std::string bytes(reinterpret_cast<const char*>(&length), 8);
  FATHOM_CHECK(write_file_atomic(path, bytes + text + data));
}

class Writer {
 public:
  Writer(const std::string& folder, const Model& model, Ops& ops, const std::string& suffix)
      : folder_(folder), model_(model), ops_(ops), suffix_(suffix) {}

  void write_all() {
    write_short();
    write_decode();
    write_long();
    if (!suffix_.empty()) return;
    write_masked();
    write_prefill();
    write_decode_full();
    if (model_.has_decoder()) write_replay();
  }

 private:
  const TextConfig& text() const { return model_.config().text_config; }

  std::vector<int32_t> tokens(int64_t n, uint32_t salt) const {
    std::vector<int32_t> ids;
    uint32_t state = salt;
    for (int64_t i = 0; i < n; ++i) {
      state = state * 1664525u + 1013904223u;
      ids.push_back(static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(text().vocab_size)));
    }
    return ids;
  }

  struct Run {
    std::unique_ptr<Runner> runner;
    Sequence sequence;
  };
  Run open(Schedule schedule, int64_t n) {
    Run run;
    run.runner = *Runner::make(model_, ops_,
                               {.schedule = schedule,
                                .context = n,
                                .max_rows = n,
                                .max_logit_rows = schedule == Schedule::kExact ? n : 1});
    run.sequence = *run.runner->open();
    return run;
  }

  // Everything that is shown of the pending tokens, and their logits.
  CaseFile all_rows(Run& run, std::span<const int32_t> ids, std::span<const uint8_t> image = {}) {
    FATHOM_CHECK(run.runner->append(run.sequence, ids, image));
    ops_.set_probe(&probe_);
    const StepItem item = {
        .sequence = &run.sequence, .n_rows = run.sequence.pending(), .want = WantLogits::kAll};
    const Kept logits = Kept::of(*run.runner->step({&item, 1}));
    ops_.set_probe(nullptr);
    CaseFile file = probe_.take();
    file["logits"] = logits;
    return file;
  }

  void save(const std::string& name, const CaseFile& file) {
    write_file(folder_ + "/" + name + suffix_ + ".safetensors", file);
  }

  // Without suffix every intermediate, with it only decisions, as in the golden data.
  void write_short() {
    const std::vector<int32_t> ids = tokens(33, 1);
    Run run = open(Schedule::kExact, 33);
    CaseFile file = all_rows(run, ids);
    if (!suffix_.empty()) {
      std::erase_if(file, [](const auto& entry) {
        return entry.first.starts_with("L") && !entry.first.ends_with("_ids") &&
               !entry.first.ends_with("pool_blocks");
      });
    }
    file["tokens"] = Kept::ids(ids);
    save("short", file);
  }

  // A reduced case: residual rows of chosen positions and layers.
  void write_masked() {
    const std::vector<int32_t> ids = tokens(33, 2);
    std::vector<uint8_t> image(33);
    std::vector<int32_t> types(33, -1);
    for (size_t i = 9; i < 20; ++i) {
      image[i] = 1;
      types[i] = 1;
    }
    Run run = open(Schedule::kExact, 33);
    CaseFile all = all_rows(run, ids, image);
    CaseFile file = {{"logits", all["logits"]}, {"tokens", Kept::ids(ids)}};
    file["token_types"] = Kept::ids(types);
    for (const auto& [name, kept] : all) {
      if (name.ends_with("moe.ids") || name.ends_with("engram.rows") ||
          name.ends_with("moe.scores") || name.ends_with("engram.gate")) {
        file[name] = kept;
      }
    }
    add_residual(file, all, {3, 12, 32}, {0, static_cast<int32_t>(text().num_hidden_layers) - 1});
    save("masked", file);
  }

  static std::string layer_scope(int64_t layer) {
    return (layer < 10 ? "L0" : "L") + std::to_string(layer) + ".";
  }

  void add_residual(CaseFile& file, const CaseFile& all, const std::vector<int32_t>& positions,
                    const std::vector<int32_t>& layers) {
    Kept residual = {DType::kBf16,
                     {static_cast<int64_t>(positions.size()), static_cast<int64_t>(layers.size()),
                      text().hc_mult, text().hidden_size},
                     {}};
    for (const int32_t p : positions) {
      for (const int32_t layer : layers) {
        const Kept& out = all.at(layer_scope(layer) + "out");
        const auto n = static_cast<size_t>(out.row_bytes());
        residual.bytes += out.bytes.substr(static_cast<size_t>(p) * n, n);
      }
    }
    file["residual"] = residual;
    file["residual_positions"] = Kept::ids(positions);
    file["residual_layers"] = Kept::ids(layers);
  }

  // Decisions of the last row under short names.
  void add_decisions(CaseFile& file, const CaseFile& all, const std::string& prefix) {
    Kept experts = {DType::kI32, {text().num_hidden_layers, text().num_experts_per_tok}, {}};
    for (int64_t layer = 0; layer < text().num_hidden_layers; ++layer) {
      const std::string scope = layer_scope(layer);
      experts.bytes += all.at(scope + "moe.ids").last_row().bytes;
      for (const char* name : {"topk_ids", "pool_blocks"}) {
        const auto found = all.find(scope + "attn." + name);
        if (found != all.end()) file[prefix + scope + name] = found->second.last_row();
      }
    }
    file[prefix + "moe_ids"] = experts;
  }

  void write_prefill() {
    CaseFile file;
    for (const int64_t n : {1, 2, 7, 16, 33, 65}) {
      const std::string number = std::to_string(n);
      const std::string prefix = "n" + std::string(3 - number.size(), '0') + number + ".";
      const std::vector<int32_t> ids = tokens(n, static_cast<uint32_t>(100 + n));
      Run run = open(Schedule::kExact, n);
      const CaseFile all = all_rows(run, ids);
      file[prefix + "tokens"] = Kept::ids(ids);
      file[prefix + "logits"] = all.at("logits").last_row();
      add_decisions(file, all, prefix);
    }
    save("prefill", file);
  }

  void write_decode() {
    const std::vector<int32_t> ids = tokens(41, 3);
    Run run = open(Schedule::kExact, 41);
    Kept logits = all_rows(run, std::span(ids).first(33)).at("logits");
    logits = {logits.dtype, {9, text().vocab_size}, logits.last_row().bytes};
    CaseFile file = {{"tokens", Kept::ids(ids)}};
    std::map<std::string, Kept> rows;
    for (size_t i = 33; i < 41; ++i) {
      const CaseFile all = all_rows(run, std::span(ids).subspan(i, 1));
      logits.bytes += all.at("logits").bytes;
      CaseFile one;
      add_decisions(one, all, "");
      for (const auto& [name, kept] : one) {
        Kept& kept_rows = rows[name];
        kept_rows.dtype = kept.dtype;
        kept_rows.shape = kept.shape;
        kept_rows.bytes += kept.bytes;
      }
    }
    for (auto& [name, kept] : rows) {
      kept.shape.insert(kept.shape.begin(), 8);
      file[name] = kept;
    }
    file["logits"] = logits;
    save("decode", file);
  }

  void write_decode_full() {
    const std::vector<int32_t> ids = tokens(35, 4);
    Run run = open(Schedule::kExact, 35);
    all_rows(run, std::span(ids).first(33));
    CaseFile file = {{"tokens", Kept::ids(ids)}};
    for (size_t p = 33; p < 35; ++p) {
      for (const auto& [name, kept] : all_rows(run, std::span(ids).subspan(p, 1))) {
        if (name.starts_with("L") && !name.ends_with("attn.index_k")) {
          file["pos" + std::to_string(p) + "." + name] = kept;
        }
      }
    }
    save("decode_full", file);
  }

  void write_long() {
    const std::vector<int32_t> ids = tokens(150, 5);
    Run run = open(Schedule::kExact, 150);
    const CaseFile all = all_rows(run, ids);
    const std::vector<int32_t> positions = {0, 20, 63, 64, 100, 149};
    Kept logits = {DType::kF32, {static_cast<int64_t>(positions.size()), text().vocab_size}, {}};
    for (const int32_t p : positions) {
      const auto n = static_cast<size_t>(all.at("logits").row_bytes());
      logits.bytes += all.at("logits").bytes.substr(static_cast<size_t>(p) * n, n);
    }
    save("long",
         {{"tokens", Kept::ids(ids)}, {"positions", Kept::ids(positions)}, {"logits", logits}});
  }

  void write_replay() {
    CaseFile file;
    for (const int64_t n : {7, 40}) {
      const std::string prefix = n < 10 ? "n007." : "n040.";
      const std::vector<int32_t> ids = tokens(n + 2, static_cast<uint32_t>(200 + n));
      Run run = open(Schedule::kDeploy, n + 2);
      Kept logits = {DType::kF32, {3, text().vocab_size}, {}};
      for (int64_t i = 0; i < 3; ++i) {
        const auto first = static_cast<size_t>(i == 0 ? 0 : n + i - 1);
        const auto count = static_cast<size_t>(i == 0 ? n : 1);
        FATHOM_CHECK(run.runner->append(run.sequence, std::span(ids).subspan(first, count)));
        ops_.set_probe(&probe_);
        logits.bytes += Kept::of(*run.runner->prefill(run.sequence)).bytes;
        ops_.set_probe(nullptr);
        const CaseFile all = probe_.take();
        for (int64_t l = model_.plan().n_encoder_layers; i == 0 && l < text().num_hidden_layers;
             ++l) {
          file[prefix + layer_scope(l) + "window_kv"] = all.at(layer_scope(l) + "attn.kv");
        }
      }
      file[prefix + "tokens"] = Kept::ids(ids);
      file[prefix + "logits"] = logits;
    }
    save("replay", file);
  }

  std::string folder_;
  const Model& model_;
  Ops& ops_;
  std::string suffix_;
  KeepingProbe probe_;
};

}  // namespace

void write_cases(const std::string& folder, const Model& model, Ops& ops,
                 const std::string& suffix) {
  Writer(folder, model, ops, suffix).write_all();
}

}  // namespace fathom
