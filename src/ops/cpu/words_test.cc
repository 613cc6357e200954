// Goal: a row's bits depend on nothing but its own inputs and its sequence's state. Method: random
// layers; every word is run over all rows at once, row by row, in uneven pieces, beside another
// sequence, with one thread and three, on every path: all bytes must be the same.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <random>

#include "ops/backends.h"
#include "ops/cpu/paths_testing.h"
#include "tensor/codecs.h"

namespace fathom {
namespace {

using Bytes = std::vector<uint8_t>;

// Random tensors that live as long as the object, and poisoned ones for outputs.
class Data {
 public:
  explicit Data(uint64_t seed) : random_(seed) {}

  Tensor values(DType dtype, std::initializer_list<int64_t> shape, float scale = 1.0f) {
    const Tensor t = output(dtype, shape);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < t.elements(); ++i) {
      const float v = scale * normal(random_);
      if (dtype == DType::kBf16) t.as<Bf16>()[i] = float_to_bf16(v);
      if (dtype == DType::kF32) t.as<float>()[i] = v;
      if (dtype == DType::kE4m3) t.as<uint8_t>()[i] = float_to_e4m3(v);
      if (dtype == DType::kE8m0) t.as<uint8_t>()[i] = static_cast<uint8_t>(120 + random_() % 8);
    }
    return t;
  }

  Tensor output(DType dtype, std::initializer_list<int64_t> shape) {
    int64_t bytes = dtype_bytes(dtype);
    for (const int64_t extent : shape) bytes *= extent;
    memory_.emplace_back(bytes + 64);
    std::memset(memory_.back().data(), 0x7e, static_cast<size_t>(bytes));
    return Tensor::dense(memory_.back().data(), dtype, shape);
  }

  Activation activation(int64_t n_rows, int64_t width) {
    return {output(DType::kBf16, {n_rows, width}), output(DType::kE4m3, {n_rows, width}),
            output(DType::kE8m0, {n_rows, width / 32})};
  }

 private:
  std::mt19937_64 random_;
  std::vector<Buffer> memory_;
};

void append(Bytes* bytes, const Tensor& t) {
  const auto* data = static_cast<const uint8_t*>(t.data);
  bytes->insert(bytes->end(), data, data + t.bytes());
}
void append(Bytes* bytes, const Activation& x) {
  append(bytes, x.bf16);
  append(bytes, x.codes);
  append(bytes, x.scales);
}

Weight weight_of(const Tensor& t) { return {.data = t, .format = WeightFormat::kBf16}; }

// Calls body(ops, cut) for every path, thread count and cut, and expects what the first call gave.
// A cut lists the lengths of the pieces that make up n rows.
using Cut = std::vector<int64_t>;
void expect_same(const std::vector<Cut>& cuts,
                 const std::function<Bytes(Ops& ops, const Cut& cut)>& body) {
  Bytes first;
  for (const CpuPath path : paths_here()) {
    for (const int n_threads : {1, 3}) {
      auto ops = std::move(*make_backend({.n_threads = n_threads, .cpu_path = path}));
      for (const Cut& cut : cuts) {
        const Bytes bytes = body(*ops, cut);
        if (first.empty()) first = bytes;
        ASSERT_EQ(first, bytes) << "path " << static_cast<int>(path) << ", threads " << n_threads
                                << ", pieces " << cut.size();
      }
    }
  }
}

// One seed a run, printed, so that what a run found can be repeated.
uint64_t run_seed() {
  static const uint64_t kSeed = [] {
    const uint64_t seed = std::random_device()();
    std::printf("words_test: seed %llu\n", static_cast<unsigned long long>(seed));
    return seed;
  }();
  return kSeed;
}

std::vector<Cut> cuts_of(int64_t n) {
  return {{n}, Cut(static_cast<size_t>(n), 1), {1, n / 3, n - n / 3 - 1}};
}

TEST(RowWords, MhcStepsDependOnTheirRowsAlone) {
  const int64_t N = 19;
  for (const int64_t n : {2, 3, 4}) {
    const int64_t D = 96;
    const int64_t n_mix = (2 + n) * n;
    expect_same(cuts_of(N), [&](Ops& ops, const Cut& cut) {
      Data data(run_seed() + 11);
      const Tensor residual = data.values(DType::kBf16, {N, n, D});
      const MhcSite site = {data.values(DType::kF32, {n_mix, n * D}, 0.1f),
                            data.values(DType::kF32, {3}), data.values(DType::kF32, {n_mix})};
      const Tensor y = data.values(DType::kBf16, {N, D});
      const MhcCoefficients expand = {
          {}, data.values(DType::kF32, {N, n}), data.values(DType::kF32, {N, n, n})};
      const Tensor pre = data.values(DType::kF32, {N, n});
      const Tensor norm = data.values(DType::kBf16, {D});
      const MhcCoefficients predicted = {data.output(DType::kF32, {N, n}),
                                         data.output(DType::kF32, {N, n}),
                                         data.output(DType::kF32, {N, n, n})};
      const Activation x = data.activation(N, D);
      int64_t begin = 0;
      for (const int64_t rows : cut) {
        const int64_t end = begin + rows;
        MhcStepArgs args;
        args.residual = residual.rows(begin, end);
        args.predicted = {predicted.pre.rows(begin, end), predicted.post.rows(begin, end),
                          predicted.comb.rows(begin, end)};
        args.x = x.rows(begin, end);
        args.y = y.rows(begin, end);
        args.expand = {{}, expand.post.rows(begin, end), expand.comb.rows(begin, end)};
        args.site = site;
        args.pre = pre.rows(begin, end);
        args.norm = norm;
        ops.mhc_step(args);
        begin = end;
      }
      Bytes bytes;
      for (const Tensor& t : {residual, predicted.pre, predicted.post, predicted.comb}) {
        append(&bytes, t);
      }
      append(&bytes, x);
      return bytes;
    });
  }
}

TEST(RowWords, MhcWithoutAStepLeavesItsOutputsAlone) {
  Data data(run_seed() + 12);
  auto ops = std::move(*make_backend({.n_threads = 1}));
  const Tensor residual = data.values(DType::kBf16, {2, 4, 32});
  Bytes before;
  append(&before, residual);
  MhcStepArgs args;
  args.residual = residual;
  args.pre = data.values(DType::kF32, {2, 4});
  for (int i = 0; i < 8; ++i) args.pre.as<float>()[i] = i % 4 == 0 ? 1.0f : 0.0f;
  args.norm = data.values(DType::kBf16, {32});
  args.x = data.activation(2, 32);
  ops->mhc_step(args);
  Bytes after;
  append(&after, residual);
  EXPECT_EQ(before, after);
  // A one-hot pre shows the norm of the first stream as it stands.
  RmsNormArgs norm{data.activation(2, 32), data.output(DType::kBf16, {2, 32}), args.norm};
  for (int64_t row = 0; row < 2; ++row) {
    std::memcpy(norm.x.row<Bf16>(row), residual.row<Bf16>(row), 64);
  }
  ops->rms_norm(norm);
  Bytes wanted;
  Bytes found;
  append(&wanted, norm.out);
  append(&found, args.x);
  EXPECT_EQ(wanted, found);
}

TEST(RowWords, NormRouteAndEngramDependOnTheirRowsAlone) {
  const int64_t N = 37;
  const int64_t D = 160;
  const int64_t C = 6;
  expect_same(cuts_of(N), [&](Ops& ops, const Cut& cut) {
    Data data(run_seed() + 13);
    const Tensor in = data.values(DType::kBf16, {N, D});
    const Tensor norm = data.values(DType::kBf16, {D});
    const Tensor gate = data.values(DType::kBf16, {24, D}, 0.1f);
    const Tensor bias = data.values(DType::kF32, {24});
    const Tensor bias_image = data.values(DType::kF32, {24});
    const Tensor residual = data.values(DType::kBf16, {N, 4, D});
    const Tensor kv = data.values(DType::kBf16, {N, 5 * D});
    const Tensor q = data.values(DType::kBf16, {4, D});
    const Tensor k = data.values(DType::kBf16, {4, D});
    const Tensor table = data.values(DType::kE4m3, {50, 64});
    const Tensor scales = data.values(DType::kE8m0, {50, 2});
    const Tensor ids = data.output(DType::kI32, {N, 5});
    const Tensor weights = data.output(DType::kF32, {N, 5});
    const Tensor mask = data.output(DType::kU8, {N});
    const Tensor table_rows = data.output(DType::kI64, {N, C});
    for (int64_t i = 0; i < N; ++i) mask.as<uint8_t>()[i] = i % 3 == 0;
    for (int64_t i = 0; i < N * C; ++i) table_rows.as<int64_t>()[i] = i * 7 % 50;
    const Activation x = data.activation(N, D);
    const Activation looked_up = data.activation(N, C * 64);
    int64_t begin = 0;
    for (const int64_t rows : cut) {
      const int64_t end = begin + rows;
      ops.rms_norm({x.rows(begin, end), in.rows(begin, end), norm});
      ops.route({ids.rows(begin, end), weights.rows(begin, end), x.rows(begin, end),
                 weight_of(gate), bias, bias_image, mask.rows(begin, end), 1.5f});
      ops.engram_gather({looked_up.rows(begin, end), table_rows.rows(begin, end), table, scales});
      ops.engram_mix({residual.rows(begin, end), kv.rows(begin, end), q, k, mask.rows(begin, end)});
      begin = end;
    }
    Bytes bytes;
    for (const Tensor& t : {ids, weights, residual}) append(&bytes, t);
    append(&bytes, x);
    append(&bytes, looked_up);
    return bytes;
  });
}

// ---- a whole attention layer over its caches ----

struct LayerShape {
  int ratio = 1;
  int64_t window = 8;
  int64_t topk = 8;
  int64_t pool = 4;
  int64_t heads = 5;
  int64_t tokens = 150;
};

constexpr int64_t kHidden = 64;
constexpr int64_t kWidth = 64;
constexpr int64_t kIndexHeads = 2;
constexpr int64_t kIndexWidth = 32;
constexpr int64_t kHalf = 8;  // rotated pairs

// Inputs and outputs of all tokens of one sequence.
struct Stream {
  Tensor x, q, kv, iq, iw;
  Tensor o, topk, pool, retopk;

  Stream(Data& data, const LayerShape& shape, int64_t n) {
    x = data.values(DType::kBf16, {n, kHidden});
    q = data.values(DType::kBf16, {n, shape.heads * kWidth});
    kv = data.values(DType::kBf16, {n, kWidth});
    iq = data.values(DType::kBf16, {n, kIndexHeads * kIndexWidth});
    iw = data.values(DType::kBf16, {n, kIndexHeads});
    o = data.output(DType::kBf16, {n, shape.heads * kWidth});
    topk = data.output(DType::kI32, {n, shape.topk});
    pool = data.output(DType::kI32, {n, shape.pool});
    retopk = data.output(DType::kI32, {n, shape.topk});
  }
};

void copy_rows(const Tensor& out, int64_t at, const Tensor& in, int64_t begin, int64_t end) {
  const int64_t row_bytes = in.bytes() / in.dim(0);
  std::memcpy(static_cast<uint8_t*>(out.data) + at * row_bytes,
              static_cast<const uint8_t*>(in.data) + begin * row_bytes,
              static_cast<size_t>((end - begin) * row_bytes));
}

class Layer {
 public:
  Layer(const LayerShape& shape, int64_t n_sequences)
      : shape_(shape),
        spec_(*KvSpec::make({.n_layers = 1,
                             .head_dim = kWidth,
                             .index_head_dim = kIndexWidth,
                             .sliding_window = shape.window,
                             .sources = {{0, shape.ratio}}})) {
    const int64_t n_blocks = (shape.tokens + kBlockTokens - 1) / kBlockTokens;
    blocks_ = Buffer(n_sequences * n_blocks * spec_.block_bytes());
    slots_ = Buffer(n_sequences * spec_.session_bytes());
    for (int64_t s = 0; s < n_sequences; ++s) {
      slot_ids_.push_back(WindowId(static_cast<uint32_t>(n_sequences - 1 - s)));
      block_ids_.emplace_back();
      // Blocks of the sequences interleave, in descending order.
      for (int64_t b = n_blocks - 1; b >= 0; --b) {
        block_ids_.back().push_back(BlockId(static_cast<uint32_t>(b * n_sequences + s)));
      }
    }
    wkv_ = data_.values(DType::kBf16, {kWidth, kHidden}, 0.2f);
    wgate_ = data_.values(DType::kBf16, {kWidth, kHidden}, 0.2f);
    wk_ = data_.values(DType::kBf16, {kIndexWidth, kWidth}, 0.2f);
    norm_ = data_.values(DType::kBf16, {kWidth});
    k_norm_ = data_.values(DType::kBf16, {kIndexWidth});
    kv_norm_ = data_.values(DType::kBf16, {kWidth});
    sink_ = data_.values(DType::kF32, {shape.heads});
    inv_freq_ = data_.values(DType::kF32, {kHalf});
  }

  // One step: sequence s goes on by lengths[s] tokens.
  void step(Ops& ops, const std::vector<Stream*>& streams, const std::vector<int64_t>& lengths) {
    std::vector<SequenceRows> sequences;
    for (size_t s = 0; s < streams.size(); ++s) {
      sequences.push_back({lengths[s], position(s), 0, 0});
    }
    const Rows rows(sequences);
    Data data(run_seed() + 1);
    Stream step(data, shape_, rows.n_rows());
    move_inputs(step, streams, rows);
    run(ops, data, step, rows);
    for (size_t s = 0; s < streams.size(); ++s) {
      const int64_t at = rows.first_row(static_cast<int64_t>(s));
      const Stream& to = *streams[s];
      copy_rows(to.o, position(s), step.o, at, at + lengths[s]);
      copy_rows(to.topk, position(s), step.topk, at, at + lengths[s]);
      copy_rows(to.pool, position(s), step.pool, at, at + lengths[s]);
      copy_rows(to.retopk, position(s), step.retopk, at, at + lengths[s]);
      positions_[s] += lengths[s];
    }
  }

  // What the next step of sequence 0 can see: its window and its blocks. The remainder keeps bytes
  // of a completed group, which no step reads.
  void append_state(Bytes* bytes) const {
    const KvStream& window = spec_.stream(KvRole::kWindow, 0);
    const auto* slot = reinterpret_cast<const uint8_t*>(slots_.data()) +
                       static_cast<int64_t>(slot_ids_[0]) * spec_.session_bytes();
    const auto* payload = slot + window.payload_offset;
    const auto* scales = slot + window.scale_offset;
    bytes->insert(bytes->end(), payload, payload + window.rows * window.payload_bytes);
    bytes->insert(bytes->end(), scales, scales + window.rows * window.scale_bytes);
    const auto* blocks = reinterpret_cast<const uint8_t*>(blocks_.data());
    for (const BlockId id : block_ids_[0]) {
      const auto* block = blocks + static_cast<int64_t>(id) * spec_.block_bytes();
      bytes->insert(bytes->end(), block, block + spec_.block_bytes());
    }
  }

 private:
  int64_t position(size_t s) {
    positions_.resize(std::max(positions_.size(), s + 1));
    return positions_[s];
  }

  void move_inputs(const Stream& step, const std::vector<Stream*>& streams, const Rows& rows) {
    for (size_t s = 0; s < streams.size(); ++s) {
      const int64_t at = rows.first_row(static_cast<int64_t>(s));
      const int64_t begin = position(s);
      const int64_t end = begin + rows.sequence(static_cast<int64_t>(s)).n_rows;
      const Stream& from = *streams[s];
      copy_rows(step.x, at, from.x, begin, end);
      copy_rows(step.q, at, from.q, begin, end);
      copy_rows(step.kv, at, from.kv, begin, end);
      copy_rows(step.iq, at, from.iq, begin, end);
      copy_rows(step.iw, at, from.iw, begin, end);
    }
  }

  KvView blocks(KvRole role) {
    lists_.assign(block_ids_.begin(), block_ids_.begin() + static_cast<int64_t>(positions_.size()));
    return {reinterpret_cast<uint8_t*>(blocks_.data()), spec_.block_bytes(), lists_,
            spec_.stream(role, 0)};
  }
  SlotView slots(KvRole role) {
    return {reinterpret_cast<uint8_t*>(slots_.data()), spec_.session_bytes(),
            std::span<const WindowId>(slot_ids_).first(positions_.size()), spec_.stream(role, 0)};
  }

  void run(Ops& ops, Data& data, const Stream& s, const Rows& rows) {
    const int64_t N = rows.n_rows();
    const Rope rope = {inv_freq_, data.output(DType::kF32, {N, kHalf}),
                       data.output(DType::kF32, {N, kHalf})};
    ops.rope({rope.cos, rope.sin, inv_freq_, &rows});
    const WindowRows packed = {data.output(DType::kE4m3, {N, kWidth}),
                               data.output(DType::kE8m0, {N, kWidth / 32})};
    ops.window_kv({packed, s.kv, kv_norm_, rope});
    CompressArgs compress;
    compress.main = blocks(KvRole::kMain);
    compress.index = blocks(KvRole::kIndex);
    if (shape_.ratio > 1) compress.remainder = slots(KvRole::kRemainder);
    compress.x = data.activation(N, kHidden);
    compress.x.bf16 = s.x;
    compress.wkv = weight_of(wkv_);
    if (shape_.ratio > 1) compress.wgate = weight_of(wgate_);
    compress.norm = norm_;
    compress.wk = weight_of(wk_);
    compress.k_norm = k_norm_;
    compress.inv_freq = inv_freq_;
    compress.rows = &rows;
    ops.compress(compress);
    IndexSelectArgs select = {
        s.topk, s.pool,           {}, s.iq, s.iw, blocks(KvRole::kIndex), rope, &rows, kIndexHeads,
        4,      IndexScores::kF32};
    ops.index_select(select);
    select.topk = s.retopk;
    select.pool_in = s.pool;
    select.pool_out = {};
    ops.index_select(select);
    ops.attend({s.o, s.q, sink_, slots(KvRole::kWindow), packed, blocks(KvRole::kMain), s.retopk,
                rope, &rows});
    ops.window_commit({slots(KvRole::kWindow), packed, &rows});
  }

  LayerShape shape_;
  KvSpec spec_;
  Data data_{99};
  Buffer blocks_;
  Buffer slots_;
  std::vector<WindowId> slot_ids_;
  std::vector<std::vector<BlockId>> block_ids_;
  std::vector<std::span<const BlockId>> lists_;
  std::vector<int64_t> positions_;
  Tensor wkv_, wgate_, wk_, norm_, k_norm_, kv_norm_, sink_, inv_freq_;
};

Bytes result_of(const Stream& stream, const Layer& layer) {
  Bytes bytes;
  for (const Tensor& t : {stream.o, stream.topk, stream.pool, stream.retopk}) append(&bytes, t);
  layer.append_state(&bytes);
  return bytes;
}

Bytes run_alone(Ops& ops, const LayerShape& shape, const Cut& cut) {
  Data data(run_seed() + 5);
  Stream stream(data, shape, shape.tokens);
  Layer layer(shape, 2);
  for (const int64_t rows : cut) layer.step(ops, {&stream}, {rows});
  return result_of(stream, layer);
}

const LayerShape kShapes[] = {
    {.ratio = 1, .window = 8, .topk = 8, .pool = 4},
    {.ratio = 2, .window = 8, .topk = 8, .pool = 4},
    {.ratio = 1, .window = 70, .topk = 66, .pool = 20},
    {.ratio = 2, .window = 64, .topk = 33, .pool = 10, .heads = 8},
};

TEST(AttentionWords, AnyCutOfAPromptGivesTheSameBytes) {
  for (const LayerShape& shape : kShapes) {
    expect_same({{150}, Cut(150, 1), {3, 1, 64, 5, 77}, {127, 23}},
                [&](Ops& ops, const Cut& cut) { return run_alone(ops, shape, cut); });
  }
}

TEST(AttentionWords, ASequenceDoesNotSeeItsNeighbour) {
  for (const LayerShape& shape : kShapes) {
    expect_same({{150}, {2, 60, 88}}, [&](Ops& ops, const Cut& cut) {
      Data data(run_seed() + 5);
      Stream stream(data, shape, shape.tokens);
      Stream other(data, shape, shape.tokens);
      Layer layer(shape, 2);
      if (cut.size() == 1) {
        layer.step(ops, {&stream}, {150});
      } else {
        layer.step(ops, {&stream, &other}, {2, 41});
        layer.step(ops, {&stream, &other}, {60, 1});
        layer.step(ops, {&stream, &other}, {88, 9});
      }
      return result_of(stream, layer);
    });
  }
}

}  // namespace
}  // namespace fathom
