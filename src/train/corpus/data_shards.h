#pragma once

// Token shards for the trainer: NAME.u16 (little-endian ids), NAME.w8 (loss weight of predicting
// each id, where they are not all 1) and index.json:
//   {"vocab_size": 4096, "sources": [{"name": "doc", "kind": "doc", "split": "train", "mix": 0.4,
//    "tokens": "doc.u16", "weights": "doc.w8", "n_tokens": 1, "bytes": 3, "row": 0}, ...]}
// kind: doc, code, recall, dialogue. split: train or heldout. mix: share of training sequences.
// row 0: one stream to take crops from, documents separated by the end token. row N: rows of
// exactly N tokens, to be used from the start of one (a crop at random would part questions from
// their facts). bytes: of the text behind the tokens (end tokens have none), for bits per byte.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"
#include "train/corpus/data_corpus.h"

namespace fathom::train {

struct Shard {
  std::string name, kind;
  Split split = Split::kTrain;
  int64_t bytes = 0;
  int64_t row = 0;
  double mix = 0;
  std::vector<uint16_t> ids;
  std::vector<uint8_t> weights;  // empty: all 1
};

// Encodes documents with an end token behind each, on two threads or more; the order is kept.
void append_documents(const Tokenizer& tokenizer, const std::vector<std::string>& texts,
                      Shard& shard);

// Documents in the order of their hash until they hold at least n_tokens.
std::vector<std::string> take_documents(const Tokenizer& tokenizer,
                                        const std::vector<std::string>& texts, int64_t n_tokens);

Result<void> write_shard(const std::string& dir, const Shard& shard);
std::string index_json(int vocab_size, const std::vector<Shard>& shards);

struct ShardOptions {
  std::string corpus_dir;  // holds text/ and tokenizer.json
  std::string out_dir;
  int64_t doc_bytes = 0, code_bytes = 0;  // of training text, chosen by hash; 0: all
  int64_t held_out_tokens = 262'144;      // a held-out set
  int64_t recall_tokens = 2'000'000;      // for each of the three lengths
  int64_t dialogue_tokens = 4'000'000;
  uint64_t seed = 1;
};

// Writes all shards, the held-out texts (held/NAME.txt.gz, documents separated by NUL), index.json
// and the Engram map. Returns the index.
Result<std::string> build_shards(const std::vector<SourceSpec>& recipe,
                                 const ShardOptions& options);

// A held-out text file as build_shards writes it.
Result<std::vector<std::string>> read_held_out(const std::string& path);

}  // namespace fathom::train
