// Goal: constants and rows of the n-gram memory equal the published vectors. Method: the vectors of
// spec/engram.md 10 and spec/backbone.md 9, the tiny model's constants, and the golden rows.

#include "model/engram_hash.h"

#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "model/numpy_random.h"
#include "model/plans.h"

namespace fathom {
namespace {

constexpr int32_t kPad = 2;

std::vector<EngramHash> released() {
  return make_engram_hashes(named_plan("released")->text_config);
}

std::vector<int64_t> rows_of(const EngramHash& hash, const std::vector<int32_t>& lookback) {
  std::vector<int64_t> rows(hash.primes.size(), -1);
  engram_rows(rows, hash, lookback, kPad);
  return rows;
}

// The four ids that position t looks back on, current first.
std::vector<int32_t> at(const std::vector<int32_t>& ids, size_t t) {
  std::vector<int32_t> lookback;
  for (size_t s = 0; s < 4; ++s) lookback.push_back(s <= t ? ids[t - s] : kDeadId);
  return lookback;
}

std::vector<int64_t> columns(const std::vector<int64_t>& rows) {
  return {rows[0], rows[7], rows[8], rows[15], rows[16], rows[23]};
}

using Rows = std::vector<int64_t>;

TEST(EngramHash, ReleasedConstants) {
  const auto hashes = released();
  ASSERT_EQ(hashes.size(), 2u);
  EXPECT_EQ(hashes[0].n_rows, 384006168);
  EXPECT_EQ(hashes[1].n_rows, 384016682);
  EXPECT_EQ(hashes[0].primes.front(), 16000057);
  EXPECT_EQ(hashes[0].primes[8], 16000189);
  EXPECT_EQ(hashes[1].primes.front(), 16000477);
  EXPECT_EQ(hashes[1].primes.back(), 16000889);
  EXPECT_EQ(hashes[0].offsets[8], 128000880);
  EXPECT_EQ(hashes[0].offsets[23], 368005705);
  EXPECT_EQ(hashes[1].offsets[16], 256009984);
  EXPECT_EQ(hashes[0].multipliers,
            (Rows{76632096046245, 4839876093313, 35959672319349, 73987337458391}));
  EXPECT_EQ(hashes[1].multipliers,
            (Rows{67716810739261, 51510806800915, 30921347202721, 82619226485591}));
}

TEST(EngramHash, TinyConstants) {
  const auto hashes = make_engram_hashes(named_plan("t12")->text_config);
  EXPECT_EQ(hashes[0].primes, (Rows{97, 101, 103, 107, 109, 113}));
  EXPECT_EQ(hashes[1].primes, (Rows{127, 131, 137, 139, 149, 151}));
  EXPECT_EQ(hashes[0].multipliers,
            (Rows{29662608052400909, 1873410163432121, 13919202536988139, 28638879857136817}));
  EXPECT_EQ(hashes[1].multipliers,
            (Rows{31841131192811251, 1950019090429101, 28509641033320619, 7337012813361983}));
}

TEST(EngramHash, PublishedRowsOfASequence) {
  const std::vector<int32_t> ids = {0, 5, 17, 99, 1234, 99091};
  const auto hashes = released();
  EXPECT_EQ(columns(rows_of(hashes[0], at(ids, 0))),
            (Rows{5702652, 121476532, 131476717, 247482304, 257520185, 380066193}));
  EXPECT_EQ(columns(rows_of(hashes[1], at(ids, 0))),
            (Rows{14361964, 120604547, 132225184, 252505246, 261362261, 372375971}));
  EXPECT_EQ(columns(rows_of(hashes[0], at(ids, 1))),
            (Rows{11226917, 113884074, 136388899, 254590090, 268359617, 377806529}));
  EXPECT_EQ(columns(rows_of(hashes[1], at(ids, 1))),
            (Rows{7960361, 113957370, 136099190, 243115322, 265679316, 380929865}));
  EXPECT_EQ(columns(rows_of(hashes[0], at(ids, 4))),
            (Rows{3476013, 124475176, 139220672, 244774858, 261726818, 383998849}));
  EXPECT_EQ(columns(rows_of(hashes[1], at(ids, 4))),
            (Rows{12886891, 121352470, 136841356, 248564259, 259923042, 371442090}));
  EXPECT_EQ(columns(rows_of(hashes[0], at(ids, 5))),
            (Rows{7841506, 127974346, 134978181, 243429729, 271536431, 379584336}));
  EXPECT_EQ(columns(rows_of(hashes[1], at(ids, 5))),
            (Rows{3315102, 127296527, 130509870, 240522805, 260452148, 375629892}));
}

TEST(EngramHash, ADeadPositionBlocksEverythingBeyondIt) {
  const std::vector<int32_t> ids = {5, 17, kDeadId, 99, 1234};
  const auto rows = rows_of(released()[0], at(ids, 4));
  EXPECT_EQ(rows[0], 3476013);
  EXPECT_EQ(rows[8], 136904797);
  EXPECT_EQ(rows[16], 259307534);
}

TEST(EngramHash, PublishedRowsWithAllColumns) {
  const auto hashes = released();
  EXPECT_EQ(rows_of(hashes[0], {40, 30, 20, 10}),
            (Rows{1326936,   22120929,  40011923,  55142539,  77849479,  85421395,
                  105208034, 120570043, 142088989, 151706440, 164511320, 186980067,
                  199834903, 222266846, 231919637, 244765195, 270969918, 287524568,
                  292261800, 310632033, 322879311, 341250912, 361620893, 378628807}));
  EXPECT_EQ(rows_of(hashes[1], {99091, 2, 2, 2}),
            (Rows{10569928,  29057789,  32561931,  49758649,  75615607,  87633997,
                  107078216, 118275352, 141663274, 144737405, 165980295, 177789793,
                  193726394, 222455426, 228074761, 245765119, 264810417, 280221609,
                  298616404, 311930870, 334226802, 351250665, 356855162, 372021888}));
}

// Compares every column of both layers at token t; returns how many.
int64_t expect_rows(const std::vector<EngramHash>& hashes, const std::vector<int32_t>& canonical,
                    const Tensor& rows, int64_t t) {
  int64_t n_compared = 0;
  for (int64_t layer = 0; layer < 2; ++layer) {
    const auto found =
        rows_of(hashes[static_cast<size_t>(layer)], at(canonical, static_cast<size_t>(t)));
    const int32_t* wanted = rows.row<int32_t>(t) + layer * rows.stride[1];
    for (size_t c = 0; c < found.size(); ++c, ++n_compared) {
      EXPECT_EQ(found[c], wanted[c]) << "token " << t << " layer " << layer << " column " << c;
    }
  }
  return n_compared;
}

TEST(EngramHash, TheGoldenRowsAreEqualWithAndWithoutADeadSpan) {
  const auto golden =
      Checkpoint::open(std::string(FATHOM_SOURCE_DIR) + "/tests/golden/ops/engram.safetensors");
  ASSERT_TRUE(golden) << golden.error().message;
  const auto hashes = released();
  const Tensor ids = golden->get("mapped_ids").value();
  const Tensor mask = golden->get("token_mask").value();
  for (const bool masked : {false, true}) {
    const Tensor rows = golden->get(masked ? "rows_masked" : "rows").value();
    std::vector<int32_t> canonical;
    for (int64_t t = 0; t < ids.dim(0); ++t) {
      const bool dead = masked && mask.as<int32_t>()[t] == 0;
      canonical.push_back(dead ? kDeadId : ids.as<int32_t>()[t]);
    }
    int64_t n_compared = 0;
    for (int64_t t = 0; t < ids.dim(0); ++t) {
      n_compared += expect_rows(hashes, canonical, rows, t);
    }
    EXPECT_EQ(n_compared, 48 * 2 * 24);
  }
}

// Vectors from numpy.random.default_rng(seed).integers(0, bound).
TEST(NumpyRandom, DrawsAsTheLibraryDoes) {
  NumpyRandom small_seed(12345);
  for (const uint64_t wanted : {249958600114u, 348279477705u, 876712591924u}) {
    EXPECT_EQ(small_seed.below(uint64_t{1} << 40), wanted);
  }
  NumpyRandom wide_seed(uint64_t{7} << 40);
  for (const uint64_t wanted : {2400688734843406109u, 6098311906566996220u, 5990037351694006321u}) {
    EXPECT_EQ(wide_seed.below((uint64_t{1} << 63) - 1), wanted);
  }
}

}  // namespace
}  // namespace fathom
