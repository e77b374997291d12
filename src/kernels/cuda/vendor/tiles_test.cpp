// Products of tiles by whole waves (tile_layout.cuh), on the CPU: that a kernel which asks the layouts for rows, columns and k gets the
// product, from emulations that are written from the documentation of the instructions' registers.
#define SLIME_KERNELS_ON_CPU

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

#include "core/error.h"
#include "kernels/block_executor/block_executor.h"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda {
namespace {

constexpr int kSide = 16, kAll = kSide * kSide;
using Square = std::vector<float>;  // [16, 16]

/// c + a b, of `waves` waves that do the same at once.
template <typename T>
Square tile_product(BlockExecutor& executor, const Square& a, const Square& b, const Square& c,
                    unsigned waves = 1) {
  Square made(kAll, -1);
  with_tiles(&executor, [&](auto layout) {
    using Layout = decltype(layout);
    executor.run({1}, {Layout::kLanes * waves}, 0, [&] {
      const int lane = static_cast<int>(threadIdx.x) % Layout::kLanes;
      uint32_t of_a[Layout::kWords], of_b[Layout::kWords];
      for (int w = 0; w < Layout::kWords; ++w) {
        const float* row = &a[Layout::A::row(lane, w) * kSide + Layout::A::k(lane, w)];
        const float* column = &b[Layout::B::k(lane, w) * kSide + Layout::B::column(lane, w)];
        of_a[w] = pack<T>(row[0], row[1]);
        of_b[w] = pack<T>(column[0], column[kSide]);
      }
      float sums[Layout::kSums];
      const auto place = [&](int i) {
        return Layout::C::row(lane, i) * kSide + Layout::C::column(lane, i);
      };
      for (int i = 0; i < Layout::kSums; ++i) sums[i] = c[place(i)];
      multiply_tiles<T>(layout, sums, of_a, of_b);
      for (int i = 0; i < Layout::kSums; ++i) made[place(i)] = sums[i];
    });
  });
  return made;
}

Square plain_product(const Square& a, const Square& b, const Square& c) {
  Square made = c;
  for (int row = 0; row < kSide; ++row)
    for (int column = 0; column < kSide; ++column)
      for (int k = 0; k < kSide; ++k)
        made[row * kSide + column] += a[row * kSide + k] * b[k * kSide + column];
  return made;
}

/// Small integers, of which every sum is exact in any order. Not symmetric.
Square integers(int seed) {
  Square made(kAll);
  for (int i = 0; i < kAll; ++i) made[i] = static_cast<float>((i * 37 + seed * 101) % 23 - 11);
  return made;
}
Square one_hot(int hot) {
  Square made(kAll);
  made[hot] = 1;
  return made;
}
Square identity() {
  Square made(kAll);
  for (int i = 0; i < kSide; ++i) made[i * kSide + i] = 1;
  return made;
}

class Tiles : public testing::TestWithParam<unsigned> {
 protected:
  Tiles() : executor_({.wave_lanes = GetParam()}) {}
  BlockExecutor executor_;
};
INSTANTIATE_TEST_SUITE_P(Lanes, Tiles, testing::Values(32U, 64U));

TEST_P(Tiles, OfTheIdentityAreTheOtherOperand) {
  const Square numbers = integers(1), none(kAll);
  EXPECT_EQ(tile_product<BFloat16>(executor_, identity(), numbers, none), numbers);
  EXPECT_EQ(tile_product<BFloat16>(executor_, numbers, identity(), none), numbers);
  EXPECT_EQ(tile_product<Float16>(executor_, identity(), numbers, none), numbers);
}

/// Where a number of an operand counts: row r of a with the one at (r, k) takes row k of b, and likewise columns.
TEST_P(Tiles, OfOneHotOperandsHaveOneRowOrColumn) {
  const Square numbers = integers(2), none(kAll);
  for (int hot = 0; hot < kAll; ++hot) {
    const Square one = one_hot(hot);
    EXPECT_EQ(tile_product<BFloat16>(executor_, one, numbers, none),
              plain_product(one, numbers, none))
        << hot;
    EXPECT_EQ(tile_product<BFloat16>(executor_, numbers, one, none),
              plain_product(numbers, one, none))
        << hot;
  }
}

TEST_P(Tiles, AddToWhatIsThere) {
  for (int seed = 3; seed < 6; ++seed) {
    const Square a = integers(seed), b = integers(seed + 10), c = integers(seed + 20);
    EXPECT_EQ(tile_product<BFloat16>(executor_, a, b, c, 2), plain_product(a, b, c));
    EXPECT_EQ(tile_product<Float16>(executor_, a, b, c, 2), plain_product(a, b, c));
  }
}

TEST_P(Tiles, RoundNothingButTheirOperands) {
  Square a(kAll), b(kAll), exact(kAll);
  for (int i = 0; i < kAll; ++i) {
    a[i] = static_cast<float>(BFloat16(std::sin(static_cast<float>(i))));
    b[i] = static_cast<float>(BFloat16(std::cos(3 * static_cast<float>(i))));
  }
  const Square made = tile_product<BFloat16>(executor_, a, b, Square(kAll)),
               plain = plain_product(a, b, Square(kAll));
  for (int i = 0; i < kAll; ++i)
    EXPECT_NEAR(made[i], plain[i], 3e-6);  // 16 sums of numbers up to 1
}

TEST_P(Tiles, OfAWrongLaneDiffer) {
  BlockExecutor mistaken({.wave_lanes = GetParam(), .mistaken_lane = 7});
  const Square a = integers(7), b = integers(8), none(kAll);
  EXPECT_NE(tile_product<BFloat16>(mistaken, a, b, none), plain_product(a, b, none));
}

/// Every number of a tile is in one place, in either layout.
template <int kLanes>
void expect_every_number_once() {
  using Layout = TileLayout<kLanes>;
  std::set<int> of_a, of_b, of_c;
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int w = 0; w < Layout::kWords; ++w) {
      of_a.insert(Layout::A::row(lane, w) * kSide + Layout::A::k(lane, w));
      of_b.insert(Layout::B::column(lane, w) * kSide + Layout::B::k(lane, w));
    }
    for (int i = 0; i < Layout::kSums; ++i)
      of_c.insert(Layout::C::row(lane, i) * kSide + Layout::C::column(lane, i));
  }
  EXPECT_EQ(of_a.size(), kAll / 2);  // two numbers a word
  EXPECT_EQ(of_b.size(), kAll / 2);
  EXPECT_EQ(of_c.size(), kAll);
}
TEST(TileLayouts, HaveEveryNumberOnce) {
  expect_every_number_once<32>();
  expect_every_number_once<64>();
}

/// The table of v_mfma_f32_16x16x16_bf16, as AMD writes it down: by hand, for lanes of each of the four blocks.
TEST(TileLayouts, OfAmdIsAsDocumented) {
  using Layout = TileLayout<64>;
  struct Row {
    int lane, row_of_a, first_k, column_of_c, first_row_of_c;
  };
  for (const Row& at : {Row{0, 0, 0, 0, 0}, Row{15, 15, 0, 15, 0}, Row{16, 0, 4, 0, 4},
                        Row{37, 5, 8, 5, 8}, Row{63, 15, 12, 15, 12}}) {
    for (int w = 0; w < 2; ++w) {
      EXPECT_EQ(Layout::A::row(at.lane, w), at.row_of_a);
      EXPECT_EQ(Layout::A::k(at.lane, w), at.first_k + 2 * w);
      EXPECT_EQ(Layout::B::column(at.lane, w), at.row_of_a);
      EXPECT_EQ(Layout::B::k(at.lane, w), at.first_k + 2 * w);
    }
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(Layout::C::column(at.lane, i), at.column_of_c);
      EXPECT_EQ(Layout::C::row(at.lane, i), at.first_row_of_c + i);
    }
  }
}

TEST(TilesOfAPartialWave, AreAMistake) {
  BlockExecutor executor({.wave_lanes = 64});
  EXPECT_THROW(executor.run({1}, {64}, 0,
                            [&] {
                              if (threadIdx.x == 9) return;
                              float c[4] = {};
                              const uint32_t none[2] = {};
                              multiply_tiles<BFloat16>(TileLayout<64>{}, c, none, none);
                            }),
               BugError);
}

}  // namespace
}  // namespace slime::kernels::cuda
