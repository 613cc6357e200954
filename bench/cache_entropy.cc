// cache_entropy MODEL TEXT...: what entropy coding of cache blocks gives, plane by plane. Each text
// (documents with a NUL behind each, as in models/heldout once unpacked) is a set; passages of it
// run in the exact schedule, and the planes of their blocks are looked at as symbols: FP4 codes of
// 4 bits, scales of 8. Prints Markdown tables: the bits a symbol that an ideal coder needs with
// tables of several contexts, always made from the other sets; the ratio by set; and what zstd
// gives and how fast it decodes. zstd's frames are decoded and compared: status 1 where one
// differs.
#include <fmt/format.h>
#include <zdict.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "engine/load.h"
#include "engine/runner.h"
#include "ops/backends.h"

namespace fathom {
namespace {

constexpr int64_t kPassages = 8;  // of a set
constexpr int64_t kPassageTokens = 2048;
// Blocks that are coded together where a coder has costs of its own: as many bytes as a block of
// the released model has (56,960).
constexpr int64_t kGroupBlocks = 8;
constexpr int kRounds = 9;  // of decoding; the best counts

// CPU time of this thread, which other programs on the machine do not lengthen.
double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Set {
  std::string name;
  std::vector<uint8_t> blocks;  // in the order of the text
};

// Payload or scales of one stream in a block.
struct Plane {
  KvStream stream;
  bool scales = false;
  int64_t offset = 0;
  int64_t row_bytes = 0;

  int64_t bytes() const { return stream.rows * row_bytes; }
  int64_t n_symbols() const { return scales ? 256 : 16; }
  int64_t bits() const { return scales ? 8 : 4; }
  int64_t n_columns() const { return scales ? row_bytes : 2 * row_bytes; }
  int64_t channels_a_scale() const { return stream.role == KvRole::kMain ? 16 : 32; }
  size_t kind() const { return (stream.role == KvRole::kMain ? 0U : 2U) + (scales ? 1U : 0U); }

  int64_t symbol(const uint8_t* block, int64_t row, int64_t column) const {
    const uint8_t* bytes = block + offset + row * row_bytes;
    return scales ? bytes[column] : bytes[column / 2] >> 4 * (column % 2) & 15;
  }
  // What stands beside a symbol: a code's scale; the scale to the left in the row, 256 for none.
  int64_t beside(const uint8_t* block, int64_t row, int64_t column) const {
    if (!scales) {
      return block[stream.scale_offset + row * stream.scale_bytes + column / channels_a_scale()];
    }
    return column == 0 ? 256 : symbol(block, row, column - 1);
  }
};
constexpr std::array<const char*, 4> kKinds = {"main codes", "main scales", "index codes",
                                               "index scales"};
// Bytes of each kind in an entry of the released model.
constexpr std::array<double, 4> kReleasedBytes = {256, 32, 64, 4};

std::vector<Plane> planes_of(const KvSpec& spec) {
  std::vector<Plane> planes;
  for (const KvStream& stream : spec.streams()) {
    if (stream.lifetime() != KvLifetime::kPrefix) continue;
    planes.push_back({stream, false, stream.payload_offset, stream.payload_bytes});
    planes.push_back({stream, true, stream.scale_offset, stream.scale_bytes});
  }
  return planes;
}

// What a table is chosen by.
enum class Context : uint8_t { kNone, kColumn, kBeside, kColumnBeside, kAbove, kColumnAbove };
constexpr std::array kContexts = {Context::kNone,         Context::kColumn, Context::kBeside,
                                  Context::kColumnBeside, Context::kAbove,  Context::kColumnAbove};
constexpr int64_t kNeighbours = 257;  // values of a neighbour, and none

int64_t context_of(Context context, const Plane& plane, const uint8_t* block, int64_t row,
                   int64_t column) {
  using enum Context;
  const bool by_column = context == kColumn || context == kColumnBeside || context == kColumnAbove;
  int64_t neighbour = 0;
  if (context == kBeside || context == kColumnBeside) neighbour = plane.beside(block, row, column);
  if (context == kAbove || context == kColumnAbove) {
    neighbour = row == 0 ? 256 : plane.symbol(block, row - 1, column);
  }
  return (by_column ? column : 0) * kNeighbours + neighbour;
}

using Counts = std::vector<int64_t>;  // [context][symbol]

class Coding {
 public:
  Coding(const std::vector<Set>& sets, int64_t block_bytes)
      : sets_(sets), block_bytes_(block_bytes) {}

  // Bits of each set with tables of the other sets: p(s|c) = (n(c,s) + 4 p(s)) / (n(c) + 4), and p
  // itself is smoothed by a count of 1/16 for each symbol.
  std::vector<double> from_others(const Plane& plane, Context context) const {
    std::vector<Counts> counts;
    for (const Set& set : sets_) counts.push_back(count(plane, context, set));
    std::vector<double> bits;
    for (size_t i = 0; i < counts.size(); ++i) {
      Counts others(counts[i].size());
      for (size_t j = 0; j < counts.size(); ++j) {
        if (j == i) continue;
        std::ranges::transform(others, counts[j], others.begin(), std::plus());
      }
      bits.push_back(cost(others, counts[i], plane.n_symbols()));
    }
    return bits;
  }

  // Bits with one table for each run of blocks, made from that run: the entropy alone, and with the
  // table (as an adaptive coder pays it: the Krichevsky-Trofimov code length over the symbols that
  // the plane ever has).
  struct Own {
    double bits = 0;
    double bits_with_table = 0;
  };
  Own own(const Plane& plane, int64_t run_blocks) const {
    Counts all(static_cast<size_t>(plane.n_symbols()));
    for (const Set& set : sets_) add(plane, set, 0, n_blocks(set), &all);
    const auto n_used = static_cast<double>(std::ranges::count_if(all, [](auto n) { return n; }));
    Own sum;
    for (const Set& set : sets_) {
      for (int64_t first = 0; first < n_blocks(set); first += run_blocks) {
        Counts run(all.size());
        add(plane, set, first, std::min(first + run_blocks, n_blocks(set)), &run);
        double total = 0;
        double log_gammas = 0;
        for (const int64_t n : run) {
          if (n == 0) continue;
          const auto count = static_cast<double>(n);
          total += count;
          sum.bits -= count * std::log2(count);
          log_gammas += std::lgamma(0.5) - std::lgamma(count + 0.5);
        }
        log_gammas += std::lgamma(total + 0.5 * n_used) - std::lgamma(0.5 * n_used);
        sum.bits += total * std::log2(total);
        sum.bits_with_table += log_gammas / std::log(2.0);
      }
    }
    return sum;
  }

  int64_t n_blocks(const Set& set) const {
    return static_cast<int64_t>(set.blocks.size()) / block_bytes_;
  }
  const uint8_t* block(const Set& set, int64_t i) const {
    return set.blocks.data() + i * block_bytes_;
  }
  const std::vector<Set>& sets() const { return sets_; }
  int64_t block_bytes() const { return block_bytes_; }

 private:
  void add(const Plane& plane, const Set& set, int64_t begin, int64_t end, Counts* counts) const {
    for (int64_t i = begin; i < end; ++i) add(plane, Context::kNone, block(set, i), counts);
  }

  static void add(const Plane& plane, Context context, const uint8_t* block, Counts* counts) {
    for (int64_t row = 0; row < plane.stream.rows; ++row) {
      for (int64_t column = 0; column < plane.n_columns(); ++column) {
        const int64_t c = context_of(context, plane, block, row, column);
        const int64_t symbol = plane.symbol(block, row, column);
        ++(*counts)[static_cast<size_t>(c * plane.n_symbols() + symbol)];
      }
    }
  }

  Counts count(const Plane& plane, Context context, const Set& set) const {
    Counts counts(static_cast<size_t>(plane.n_columns() * kNeighbours * plane.n_symbols()));
    for (int64_t i = 0; i < n_blocks(set); ++i) add(plane, context, block(set, i), &counts);
    return counts;
  }

  static double cost(const Counts& table, const Counts& coded, int64_t n_symbols) {
    const auto n = static_cast<size_t>(n_symbols);
    std::vector<double> p(n, 1.0 / 16);
    for (size_t i = 0; i < table.size(); ++i) p[i % n] += static_cast<double>(table[i]);
    double total = 0;
    for (const double x : p) total += x;
    double bits = 0;
    for (size_t c = 0; c < table.size(); c += n) {
      double seen = 4;
      for (size_t s = 0; s < n; ++s) seen += static_cast<double>(table[c + s]);
      for (size_t s = 0; s < n; ++s) {
        if (coded[c + s] == 0) continue;
        const double q = (static_cast<double>(table[c + s]) + 4 * p[s] / total) / seen;
        bits -= static_cast<double>(coded[c + s]) * std::log2(q);
      }
    }
    return bits;
  }

  const std::vector<Set>& sets_;
  int64_t block_bytes_;
};

// Sums of coded bits by kind of plane, and what ratio they make.
struct Total {
  std::array<double, 4> coded = {};
  std::array<double, 4> plain = {};

  void add(const Plane& plane, double coded_bits, double plain_bits) {
    coded[plane.kind()] += coded_bits;
    plain[plane.kind()] += plain_bits;
  }
  double ratio() const {
    return (plain[0] + plain[1] + plain[2] + plain[3]) /
           (coded[0] + coded[1] + coded[2] + coded[3]);
  }
  // With the shares of the released model's planes.
  double released_ratio() const {
    double sum = 0;
    for (size_t kind = 0; kind < 4; ++kind) {
      sum += kReleasedBytes[kind] * coded[kind] / plain[kind];
    }
    return (kReleasedBytes[0] + kReleasedBytes[1] + kReleasedBytes[2] + kReleasedBytes[3]) / sum;
  }
};

std::string name_of(const Plane& plane) {
  return fmt::format("layer {} {}", plane.stream.layer, kKinds[plane.kind()]);
}

void print_row(const std::string& name, const std::vector<double>& cells, int digits) {
  std::string line = fmt::format("| {} |", name);
  for (const double cell : cells) line += fmt::format(" {:.{}f} |", cell, digits);
  std::printf("%s\n", line.c_str());
}

// Tables 1 and 2: ideal coders, by plane and by set.
void print_entropy(const Coding& coding, const std::vector<Plane>& planes) {
  constexpr size_t kOwn = 3;
  constexpr size_t kColumns = kOwn + kContexts.size();
  std::array<Total, kColumns + 1> totals;  // the last: the best of the tables from other sets
  std::vector<std::array<Total, kColumns + 1>> by_set(coding.sets().size());
  std::printf(
      "| plane | own block | own block + table | own %ld blocks + table | static | by column | "
      "by neighbour | by both | by row above | by it and column |\n"
      "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
      kGroupBlocks);
  for (const Plane& plane : planes) {
    double n = 0;
    std::vector<double> plain;
    for (const Set& set : coding.sets()) {
      plain.push_back(static_cast<double>(coding.n_blocks(set) * plane.bytes() * 8));
      n += plain.back();
    }
    const Coding::Own one = coding.own(plane, 1);
    std::vector<double> bits = {one.bits, one.bits_with_table,
                                coding.own(plane, kGroupBlocks).bits_with_table};
    std::vector<double> best;
    for (const Context context : kContexts) {
      const std::vector<double> of_sets = coding.from_others(plane, context);
      bits.push_back(0);
      for (size_t i = 0; i < of_sets.size(); ++i) {
        by_set[i][bits.size() - 1].add(plane, of_sets[i], plain[i]);
        bits.back() += of_sets[i];
      }
      if (best.empty() || bits.back() < best.front()) {
        best = {bits.back()};
        best.insert(best.end(), of_sets.begin(), of_sets.end());
      }
    }
    for (size_t i = 0; i < plain.size(); ++i) by_set[i].back().add(plane, best[i + 1], plain[i]);
    for (size_t i = 0; i < kColumns; ++i) totals[i].add(plane, bits[i], n);
    totals.back().add(plane, best.front(), n);
    for (double& x : bits) x *= static_cast<double>(plane.bits()) / n;
    print_row(name_of(plane), bits, 3);
  }
  std::vector<double> whole;
  std::vector<double> released;
  for (size_t i = 0; i < kColumns; ++i) {
    whole.push_back(totals[i].ratio());
    released.push_back(totals[i].released_ratio());
  }
  print_row("**ratio of the whole block**", whole, 4);
  print_row("ratio with the released shares", released, 4);
  std::printf("\nBest static table for each plane: %.4f, with the released shares %.4f.\n\n",
              totals.back().ratio(), totals.back().released_ratio());
  std::printf(
      "| set | static | by column | by neighbour | by both | by row above | by it and column | "
      "best by plane |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  for (size_t i = 0; i < by_set.size(); ++i) {
    std::vector<double> ratios;
    for (size_t j = kOwn; j <= kColumns; ++j) ratios.push_back(by_set[i][j].ratio());
    print_row(coding.sets()[i].name, ratios, 4);
  }
}

// Planes of runs of kGroupBlocks blocks as separate buffers.
std::vector<std::string> buffers_of(const Coding& coding, const Plane& plane, const Set& set) {
  std::vector<std::string> buffers;
  for (int64_t i = 0; i < coding.n_blocks(set); ++i) {
    if (i % kGroupBlocks == 0) buffers.emplace_back();
    buffers.back().append(reinterpret_cast<const char*>(coding.block(set, i)) + plane.offset,
                          static_cast<size_t>(plane.bytes()));
  }
  return buffers;
}

// A dictionary of the other sets: what it gives a frame is its tables, which then cost nothing.
std::string dictionary_of(const Coding& coding, const Plane& plane, const Set& left_out) {
  std::string samples;
  std::vector<size_t> sizes;
  for (const Set& set : coding.sets()) {
    if (&set == &left_out) continue;
    for (const std::string& buffer : buffers_of(coding, plane, set)) {
      samples += buffer;
      sizes.push_back(buffer.size());
    }
  }
  std::string dictionary(8192, '\0');
  const size_t n = ZDICT_finalizeDictionary(
      dictionary.data(), dictionary.size(), samples.data(), 1024, samples.data(), sizes.data(),
      static_cast<unsigned>(sizes.size()), {.compressionLevel = 1, .notificationLevel = 0});
  FATHOM_CHECK(!ZDICT_isError(n));
  dictionary.resize(n);
  return dictionary;
}

struct Zstd {
  int level = 0;
  bool dictionary = false;
};
constexpr std::array<Zstd, 4> kZstd = {{{1, false}, {3, false}, {1, true}, {3, true}}};

struct Coded {
  double bytes = 0;
  double seconds = 0;  // of decoding all
};

// One set's plane; decodes and compares.
Coded code(const std::vector<std::string>& buffers, const Zstd& zstd, const std::string& table) {
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> encoder(ZSTD_createCCtx(),
                                                                     &ZSTD_freeCCtx);
  const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> decoder(ZSTD_createDCtx(),
                                                                     &ZSTD_freeDCtx);
  ZSTD_CCtx_setParameter(encoder.get(), ZSTD_c_compressionLevel, zstd.level);
  ZSTD_CCtx_setParameter(encoder.get(), ZSTD_c_dictIDFlag, 0);
  if (zstd.dictionary) {
    FATHOM_CHECK(
        !ZSTD_isError(ZSTD_CCtx_loadDictionary(encoder.get(), table.data(), table.size())));
    FATHOM_CHECK(
        !ZSTD_isError(ZSTD_DCtx_loadDictionary(decoder.get(), table.data(), table.size())));
  }
  Coded coded;
  std::vector<std::string> frames;
  for (const std::string& buffer : buffers) {
    std::string& frame = frames.emplace_back(ZSTD_compressBound(buffer.size()), '\0');
    const size_t n =
        ZSTD_compress2(encoder.get(), frame.data(), frame.size(), buffer.data(), buffer.size());
    FATHOM_CHECK(!ZSTD_isError(n));
    frame.resize(n);
    coded.bytes += static_cast<double>(n);
  }
  std::string out(buffers.front().size(), '\0');
  coded.seconds = 1e30;
  for (int round = 0; round < kRounds; ++round) {
    double seconds = 0;
    for (size_t i = 0; i < frames.size(); ++i) {
      const double start = cpu_seconds();
      const size_t n = ZSTD_decompressDCtx(decoder.get(), out.data(), out.size(), frames[i].data(),
                                           frames[i].size());
      seconds += cpu_seconds() - start;
      FATHOM_CHECK(n == buffers[i].size() && std::memcmp(out.data(), buffers[i].data(), n) == 0);
    }
    coded.seconds = std::min(coded.seconds, seconds);
  }
  return coded;
}

// Table 3: ratio and decoded megabytes a second on one thread, by kind of plane and for the whole.
void print_zstd(const Coding& coding, const std::vector<Plane>& planes) {
  std::printf(
      "\n| zstd | %s | %s | %s | %s | whole | released shares | decodes, MB/s |\n"
      "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
      kKinds[0], kKinds[1], kKinds[2], kKinds[3]);
  for (const Zstd& zstd : kZstd) {
    Total total;
    double seconds = 0;
    double bytes = 0;
    for (const Plane& plane : planes) {
      for (const Set& set : coding.sets()) {
        const Coded coded = code(buffers_of(coding, plane, set), zstd,
                                 zstd.dictionary ? dictionary_of(coding, plane, set) : "");
        const auto plain = static_cast<double>(coding.n_blocks(set) * plane.bytes());
        total.add(plane, 8 * coded.bytes, 8 * plain);
        seconds += coded.seconds;
        bytes += plain;
      }
    }
    std::string line = fmt::format("| -{}{} |", zstd.level, zstd.dictionary ? ", dictionary" : "");
    for (size_t kind = 0; kind < 4; ++kind) {
      line += fmt::format(" {:.4f} |", total.plain[kind] / total.coded[kind]);
    }
    std::printf("%s %.4f | %.4f | %.0f |\n", line.c_str(), total.ratio(), total.released_ratio(),
                bytes / seconds / 1e6);
  }
}

Result<Set> run_set(const LoadedModel& loaded, Runner& runner, const std::string& path) {
  FATHOM_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  std::vector<TokenId> ids;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\0', begin), text.size());
    FATHOM_ASSIGN_OR_RETURN(const auto document,
                            raw_prompt_ids(loaded, text.substr(begin, end - begin)));
    ids.insert(ids.end(), document.begin(), document.end());
    begin = end + 1;
  }
  const auto n_ids = static_cast<int64_t>(ids.size());
  if (n_ids < kPassages * kPassageTokens) {
    return invalid(fmt::format("{}: wanted at least {} tokens, found {}", path,
                               kPassages * kPassageTokens, n_ids));
  }
  Set set = {.name = path.substr(path.rfind('/') + 1), .blocks = {}};
  for (int64_t i = 0; i < kPassages; ++i) {
    const auto begin = static_cast<size_t>(i * ((n_ids - kPassageTokens) / (kPassages - 1)));
    FATHOM_ASSIGN_OR_RETURN(Sequence sequence, runner.open());
    FATHOM_RETURN_IF_ERROR(
        runner.append(sequence, std::span(ids).subspan(begin, size_t{kPassageTokens})));
    FATHOM_RETURN_IF_ERROR(runner.prefill(sequence));
    const int64_t bytes = runner.blocks().block_bytes();
    for (const BlockId id : sequence.blocks) {
      const uint8_t* block = runner.blocks().base() + static_cast<int64_t>(id) * bytes;
      set.blocks.insert(set.blocks.end(), block, block + bytes);
    }
    runner.close(sequence);
  }
  return set;
}

Result<void> measure(int argc, char** argv) {
  if (argc < 4) return invalid("usage: cache_entropy MODEL TEXT TEXT...");
  FATHOM_ASSIGN_OR_RETURN(const LoadedModel loaded, load_model(argv[1], {.n_threads = 1}));
  FATHOM_ASSIGN_OR_RETURN(const auto ops, make_backend({.n_threads = 1}));
  FATHOM_ASSIGN_OR_RETURN(
      const auto runner,
      Runner::make(*loaded.model, *ops, {.schedule = Schedule::kExact, .context = kPassageTokens}));
  std::vector<Set> sets;
  for (int i = 2; i < argc; ++i) {
    FATHOM_ASSIGN_OR_RETURN(Set set, run_set(loaded, *runner, argv[i]));
    sets.push_back(std::move(set));
  }
  FATHOM_ASSIGN_OR_RETURN(const KvSpec spec,
                          KvSpec::make(kv_for_context(loaded.model->plan().kv, kPassageTokens)));
  const std::vector<Plane> planes = planes_of(spec);
  const Coding coding(sets, spec.block_bytes());
  std::printf("%ld bytes a block, %ld blocks a set, %zu sets\n\n", coding.block_bytes(),
              coding.n_blocks(sets.front()), sets.size());
  print_entropy(coding, planes);
  print_zstd(coding, planes);
  return {};
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
  const auto result = fathom::measure(argc, argv);
  if (result) return 0;
  std::fprintf(stderr, "%s\n", result.error().message.c_str());
  return 1;
}
