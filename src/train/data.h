#pragma once

// Training data: streams of little-endian uint16 tokens, mapped, with loss weights of one byte a
// token where the index names them. index.json:
//   {"vocab_size": 4096, "sources": [{"name": "recall_512", "kind": "recall", "split": "train",
//     "tokens": "recall_512.u16", "weights": "recall_512.w8", "n_tokens": 2000187,
//     "bytes": 5331122, "row": 513}, ...]}
// `bytes` are the bytes of text the tokens stand for; `split` is "train" or "heldout"; `row` above
// 0 means that the stream is rows of that many tokens and crops begin at a row. Batches are a pure
// function of seed, step and shape.

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace fathom::train {

struct Source {
  std::string name, kind;
  int64_t row = 0;
  uint64_t bytes = 0;
  MappedFile tokens;
  std::optional<MappedFile> weights;

  const uint16_t* ids() const { return reinterpret_cast<const uint16_t*>(tokens.bytes().data()); }
  int64_t size() const { return static_cast<int64_t>(tokens.bytes().size() / 2); }
  double weight(int64_t at) const {
    return weights ? static_cast<double>(weights->bytes()[at]) : 1.0;
  }
};

struct Batch {
  at::Tensor tokens;  // [batch, length] int64
  at::Tensor target;  // [batch * length] int64, the next token
  at::Tensor weight;  // [batch * length] fp32, loss weight of the target, not normalised
};

class Dataset {
 public:
  static Result<Dataset> open(const std::string& folder);

  // Share of the sequences by kind of source; shares need not sum to 1.
  using Mix = std::map<std::string, double>;

  // Random crops: a kind is drawn by the mix, then a source of it by size. Of sources in rows,
  // those with the longest row that fits a sequence are used.
  Batch sample(uint64_t seed, uint64_t step, at::IntArrayRef shape, const Mix& mix) const;
  bool has(const std::string& kind, int64_t length) const;
  // Consecutive crops of a held-out source from its start; fewer if the source is short.
  static Batch slice(const Source& source, int64_t batch, int64_t length);

  const std::vector<Source>& train() const { return train_; }
  const std::vector<Source>& heldout() const { return heldout_; }
  const std::string& folder() const { return folder_; }

  // The compressed id of each token, from engram_map.i32 beside the index; identity if absent.
  Result<at::Tensor> engram_map(int64_t vocab) const;

 private:
  std::string folder_;
  std::vector<Source> train_, heldout_;
};

}  // namespace fathom::train
