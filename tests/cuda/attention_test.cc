// Goal: words over packed state give the CPU's bits on the GPU: outputs, choices and the caches
// themselves. Method: whole attention layers over several steps and sequences, small shapes with
// every corner and the released shape; long contexts with planted ties.
#include "side.h"

namespace fathom {
namespace {

struct LayerShape {
  int ratio = 1;
  int64_t window = 8;
  int64_t topk = 8;
  int64_t pool = 4;
  int64_t heads = 5;
  int64_t width = 64;
  int64_t half = 8;
  int64_t index_heads = 2;
  int64_t index_width = 32;
  int64_t hidden = 64;
  int64_t block_size = 4;
  IndexScores scores = IndexScores::kF32;
};

// Two sequences with their caches; blocks interleave, in descending order.
class Layer {
 public:
  Layer(Side& side, const LayerShape& shape, int64_t tokens)
      : side_(side),
        s_(shape),
        spec_(*KvSpec::make({.n_layers = 1,
                             .head_dim = shape.width,
                             .index_head_dim = shape.index_width,
                             .sliding_window = shape.window,
                             .sources = {{0, shape.ratio}}})) {
    const int64_t n_blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
    block_bytes_ = 2 * n_blocks * spec_.block_bytes();
    blocks_ = side.room(block_bytes_);
    slots_ = side.room(2 * spec_.session_bytes());
    for (int64_t s = 0; s < 2; ++s) {
      slot_ids_.push_back(WindowId(static_cast<uint32_t>(1 - s)));
      block_ids_.emplace_back();
      for (int64_t b = n_blocks - 1; b >= 0; --b) {
        block_ids_.back().push_back(BlockId(static_cast<uint32_t>(b * 2 + s)));
      }
    }
    for (const auto& list : block_ids_) lists_.push_back(list);
    wkv_ = side.weight(WeightFormat::kBf16, s_.width, s_.hidden, 0.2f);
    wgate_ = side.weight(WeightFormat::kBf16, s_.width, s_.hidden, 0.2f);
    wk_ = side.weight(WeightFormat::kBf16, s_.index_width, s_.width, 0.2f);
    norm_ = side.values(DType::kBf16, {s_.width});
    k_norm_ = side.values(DType::kBf16, {s_.index_width});
    kv_norm_ = side.values(DType::kBf16, {s_.width});
    sink_ = side.values(DType::kF32, {s_.heads});
    inv_freq_ = side.values(DType::kF32, {s_.half});
  }

  // Sequence s goes on by lengths[s] tokens; what it puts out joins `bytes`.
  void step(const std::vector<int64_t>& lengths, Bytes* bytes) {
    std::vector<SequenceRows> sequences;
    for (size_t s = 0; s < lengths.size(); ++s) {
      sequences.push_back({lengths[s], positions_[s], 0, replay_ ? positions_[s] + 3 : 0});
      positions_[s] += lengths[s];
    }
    run(Rows(sequences), bytes);
  }

  // From now on the first tokens of a step are replayed: their entries are not written.
  void replay() { replay_ = true; }

  void read_caches(Bytes* bytes) {
    side_.read(bytes, Tensor::dense(blocks_, DType::kU8, {block_bytes_}));
    side_.read(bytes, Tensor::dense(slots_, DType::kU8, {2 * spec_.session_bytes()}));
  }

 private:
  KvView blocks(KvRole role, int64_t n_sequences) {
    return {reinterpret_cast<uint8_t*>(blocks_), spec_.block_bytes(),
            std::span(lists_).first(static_cast<size_t>(n_sequences)), spec_.stream(role, 0)};
  }
  SlotView slots(KvRole role, int64_t n_sequences) {
    return {reinterpret_cast<uint8_t*>(slots_), spec_.session_bytes(),
            std::span(slot_ids_).first(static_cast<size_t>(n_sequences)), spec_.stream(role, 0)};
  }

  void run(const Rows& rows, Bytes* bytes) {
    const int64_t N = rows.n_rows();
    const int64_t S = rows.n_sequences();
    Ops& ops = side_.ops();
    const Rope rope = {inv_freq_, side_.output(DType::kF32, {N, s_.half}),
                       side_.output(DType::kF32, {N, s_.half})};
    ops.rope({rope.cos, rope.sin, inv_freq_, &rows});
    const WindowRows packed = {side_.output(DType::kE4m3, {N, s_.width}),
                               side_.output(DType::kE8m0, {N, s_.width / 32})};
    ops.window_kv({packed, side_.values(DType::kBf16, {N, s_.width}), kv_norm_, rope});
    CompressArgs compress;
    compress.main = blocks(KvRole::kMain, S);
    compress.index = blocks(KvRole::kIndex, S);
    compress.x = side_.normed(N, s_.hidden);
    compress.wkv = wkv_;
    if (s_.ratio > 1) {
      compress.wgate = wgate_;
      compress.remainder = slots(KvRole::kRemainder, S);
    }
    compress.norm = norm_;
    compress.wk = wk_;
    compress.k_norm = k_norm_;
    compress.inv_freq = inv_freq_;
    compress.rows = &rows;
    ops.compress(compress);
    const Tensor topk = side_.output(DType::kI32, {N, s_.topk});
    const Tensor again = side_.output(DType::kI32, {N, s_.topk});
    const Tensor pool = side_.output(DType::kI32, {N, s_.pool});
    IndexSelectArgs select;
    select.topk = topk;
    select.pool_out = pool;
    select.q = side_.values(DType::kBf16, {N, s_.index_heads * s_.index_width});
    select.weights = side_.values(DType::kBf16, {N, s_.index_heads});
    select.keys = blocks(KvRole::kIndex, S);
    select.rope = rope;
    select.rows = &rows;
    select.n_heads = s_.index_heads;
    select.block_size = s_.block_size;
    select.scores = s_.scores;
    ops.index_select(select);
    select.topk = again;
    select.pool_in = pool;
    select.pool_out = {};
    ops.index_select(select);
    const Tensor q = side_.values(DType::kBf16, {N, s_.heads * s_.width});
    const Tensor o = side_.output(DType::kBf16, {N, s_.heads * s_.width});
    const Tensor window_only = side_.output(DType::kBf16, {N, s_.heads * s_.width});
    ops.attend({o, q, sink_, slots(KvRole::kWindow, S), packed, blocks(KvRole::kMain, S), again,
                rope, &rows});
    ops.attend({window_only, q, sink_, slots(KvRole::kWindow, S), packed, {}, {}, rope, &rows});
    ops.window_commit({slots(KvRole::kWindow, S), packed, &rows});
    for (const Tensor& t : {packed.payload, packed.scales, topk, pool, again, o, window_only}) {
      side_.read(bytes, t);
    }
  }

  Side& side_;
  LayerShape s_;
  KvSpec spec_;
  int64_t block_bytes_ = 0;
  std::byte* blocks_ = nullptr;
  std::byte* slots_ = nullptr;
  std::vector<WindowId> slot_ids_;
  std::vector<std::vector<BlockId>> block_ids_;
  std::vector<std::span<const BlockId>> lists_;
  int64_t positions_[2] = {};
  bool replay_ = false;
  Weight wkv_, wgate_, wk_;
  Tensor norm_, k_norm_, kv_norm_, sink_, inv_freq_;
};

TEST_F(CudaWords, AttentionLayersOfSmallShapes) {
  for (const LayerShape& shape :
       {LayerShape{}, LayerShape{.ratio = 2}, LayerShape{.window = 70, .topk = 66, .pool = 20},
        LayerShape{.ratio = 2, .window = 64, .topk = 33, .pool = 10, .heads = 8},
        LayerShape{.ratio = 4, .topk = 5, .pool = 3, .heads = 17, .block_size = 1},
        LayerShape{.width = 96, .index_width = 96, .scores = IndexScores::kBf16}}) {
    SCOPED_TRACE(testing::Message() << "ratio " << shape.ratio << " window " << shape.window);
    expect_same(21, [&](Side& side) {
      Layer layer(side, shape, 256);
      Bytes bytes;
      layer.step({2, 41}, &bytes);
      layer.step({60, 1}, &bytes);
      for (int i = 0; i < 9; ++i) layer.step({1, 1}, &bytes);
      layer.step({88, 9}, &bytes);
      layer.replay();
      layer.step({7, 2}, &bytes);
      layer.read_caches(&bytes);
      return bytes;
    });
  }
}

LayerShape released_shape(int ratio) {
  return {.ratio = ratio,
          .window = 128,
          .topk = 512,
          .pool = 80,
          .heads = 64,
          .width = 512,
          .half = 32,
          .index_heads = 32,
          .index_width = 128,
          .hidden = 256,
          .block_size = 8};
}

TEST_F(CudaWords, AttentionLayersOfTheReleasedShape) {
  for (const int ratio : {1, 2}) {
    const LayerShape shape = released_shape(ratio);
    expect_same(22, [&](Side& side) {
      Layer layer(side, shape, 1536);
      Bytes bytes;
      layer.step({700, 129}, &bytes);
      layer.step({1, 1}, &bytes);
      layer.step({500, 2}, &bytes);
      layer.step({1, 64}, &bytes);
      layer.read_caches(&bytes);
      return bytes;
    });
  }
}

// Everything but attention's sums has the same bits; those stay within 0.5 %.
TEST_F(CudaFast, AttentionOfTheReleasedShape) {
  for (const int ratio : {1, 2}) {
    const LayerShape shape = released_shape(ratio);
    Side exact(*exact_, 23);
    Side fast(*fast_, 23);
    Layer wanted(exact, shape, 1536);
    Layer found(fast, shape, 1536);
    for (const std::vector<int64_t>& lengths :
         {std::vector<int64_t>{700, 129}, {1, 1}, {500, 2}, {1, 64}}) {
      Bytes a;
      Bytes b;
      wanted.step(lengths, &a);
      found.step(lengths, &b);
      ASSERT_EQ(a.size(), b.size());
      const auto n_rows = static_cast<size_t>(lengths[0] + lengths[1]);
      const size_t n_sums = n_rows * 2 * 64 * 512 * 2;
      ASSERT_TRUE(std::equal(a.begin(), a.end() - static_cast<ptrdiff_t>(n_sums), b.begin()));
      const double error = relative_l2(std::span(b).last(n_sums), std::span(a).last(n_sums));
      EXPECT_LT(error, 5e-3) << "ratio " << ratio << ", " << n_rows << " rows";
      EXPECT_GT(error, 0) << "the exact kernel ran";
    }
  }
}

// Keys as they may stand in a long context: random, and every seventh one the same.
struct LongKeys {
  int64_t n_entries = 20000;
  int64_t n_heads = 8;
  int64_t width = 128;
  int64_t drawn_rows = 0;  // of queries, where more are drawn than rows are asked for
};

Bytes choose(Side& side, const LongKeys& s, const Rows& rows, int64_t K, int64_t P) {
  const KvSpec spec = *KvSpec::make({.n_layers = 1,
                                     .head_dim = 64,
                                     .index_head_dim = s.width,
                                     .sliding_window = 8,
                                     .sources = {{0, 1}}});
  const KvStream& stream = spec.stream(KvRole::kIndex, 0);
  const int64_t n_blocks = (s.n_entries + kBlockTokens - 1) / kBlockTokens;
  Bytes host(static_cast<size_t>(n_blocks * spec.block_bytes()));
  for (int64_t e = 0; e < n_blocks * kBlockTokens; ++e) {
    std::mt19937_64 random(e % 7 == 0 ? 7 : static_cast<uint64_t>(e));
    uint8_t* block = host.data() + e / kBlockTokens * spec.block_bytes();
    uint8_t* codes = block + stream.payload_offset + e % kBlockTokens * stream.payload_bytes;
    uint8_t* scales = block + stream.scale_offset + e % kBlockTokens * stream.scale_bytes;
    for (int64_t i = 0; i < stream.payload_bytes; ++i) codes[i] = static_cast<uint8_t>(random());
    for (int64_t i = 0; i < stream.scale_bytes; ++i) {
      scales[i] = static_cast<uint8_t>(122 + random() % 4);
    }
  }
  std::byte* keys = side.room(static_cast<int64_t>(host.size()));
  side.ops().memory().write(keys, host.data(), static_cast<int64_t>(host.size()));
  std::vector<BlockId> list;
  for (int64_t b = 0; b < n_blocks; ++b) list.push_back(BlockId(static_cast<uint32_t>(b)));
  const std::vector<std::span<const BlockId>> lists(static_cast<size_t>(rows.n_sequences()), list);
  const int64_t N = rows.n_rows();
  const int64_t drawn = std::max(N, s.drawn_rows);
  const Rope rope = {side.values(DType::kF32, {16}),
                     side.values(DType::kF32, {drawn, 16}).rows(0, N),
                     side.values(DType::kF32, {drawn, 16}).rows(0, N)};
  IndexSelectArgs args;
  args.topk = side.output(DType::kI32, {N, K});
  args.pool_out = side.output(DType::kI32, {N, P});
  args.q = side.values(DType::kBf16, {drawn, s.n_heads * s.width}).rows(0, N);
  args.weights = side.values(DType::kBf16, {drawn, s.n_heads}).rows(0, N);
  args.keys = {reinterpret_cast<uint8_t*>(keys), spec.block_bytes(), lists, stream};
  args.rope = rope;
  args.rows = &rows;
  args.n_heads = s.n_heads;
  args.block_size = 8;
  side.ops().index_select(args);
  Bytes bytes;
  side.read(&bytes, args.topk);
  side.read(&bytes, args.pool_out);
  args.pool_in = args.pool_out;
  args.pool_out = {};
  args.topk = side.output(DType::kI32, {N, K});
  side.ops().index_select(args);
  side.read(&bytes, args.topk);
  return bytes;
}

TEST_F(CudaWords, LongContextsWithTiedScores) {
  const LongKeys keys;
  const Rows rows({{3, 19990}, {2, 511}, {4, 16381}, {1, 0}, {2, 1023}});
  for (const auto& [K, P] : {std::pair<int64_t, int64_t>{512, 1024}, {512, 2600}, {33, 7}}) {
    expect_same(23, [&](Side& side) { return choose(side, keys, rows, K, P); });
  }
}

// The choice by tensor cores: nearly that of the CPU's scores, and a row's does not depend on the
// rows beside it, in one piece or in several.
TEST_F(CudaFast, IndexChoicesDoNotDependOnTheBatch) {
  const LongKeys keys = {.n_heads = 32, .drawn_rows = 600};
  const Rows all({{600, 19000}});
  const Rows one({{1, 19000}});
  const auto of = [&](Ops& ops, const Rows& rows) {
    return run(ops, 25, [&](Side& side) { return choose(side, keys, rows, 512, 1024); });
  };
  const Bytes wanted = of(*exact_, all);
  const Bytes found = of(*fast_, all);
  ASSERT_EQ(wanted.size(), found.size());
  size_t n_different = 0;
  for (size_t i = 0; i < found.size(); i += 4) {
    n_different += std::memcmp(&found[i], &wanted[i], 4) != 0 ? 1 : 0;
  }
  std::printf("index choices: %zu of %zu places differ\n", n_different, found.size() / 4);
  EXPECT_LT(n_different, found.size() / 4 / 20);
  EXPECT_EQ(of(*fast_, all), found) << "again";
  const Bytes alone = of(*fast_, one);
  // Lists of a row: its best entries, its best blocks, its best entries of those blocks.
  const size_t sizes[] = {512 * 4, 1024 * 4, 512 * 4};
  size_t at = 0;
  size_t begin = 0;
  for (const size_t size : sizes) {
    EXPECT_TRUE(std::equal(alone.begin() + static_cast<ptrdiff_t>(at),
                           alone.begin() + static_cast<ptrdiff_t>(at + size),
                           found.begin() + static_cast<ptrdiff_t>(begin)))
        << "list of " << size / 4;
    at += size;
    begin += size * 600;
  }
}

// More rows than one piece of scores holds.
TEST_F(CudaWords, ManyRowsAreScoredInPieces) {
  const LongKeys keys = {.n_entries = 20000, .n_heads = 1, .width = 32};
  const Rows rows({{1000, 19000}});
  expect_same(24, [&](Side& side) { return choose(side, keys, rows, 64, 300); });
}

}  // namespace
}  // namespace fathom
