// Lanes and fragments as targets with wide waves have them (half_waves.cuh), on the CPU.
#define SLIME_KERNELS_ON_CPU

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "kernels/block_executor/block_executor.h"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda {
namespace {

class HalfWaves : public testing::TestWithParam<unsigned> {
 protected:
  HalfWaves() : executor_({.wave_lanes = GetParam()}) {}
  BlockExecutor executor_;
};
INSTANTIATE_TEST_SUITE_P(Lanes, HalfWaves, testing::Values(32U, 64U));

TEST_P(HalfWaves, AGroupOf32LanesIsAsAWarp) {
  std::array<std::array<int, 5>, 64> got{};
  executor_.run({1}, {64}, 0, [&] {
    const int i = static_cast<int>(threadIdx.x);
    got[i] = {shuffle(i, 3), shuffle_xor(i, 16), shuffle_up(i, 4),
              static_cast<int>(ballot(i % 32 < i / 32 + 1)),
              static_cast<int>(reduce_max(static_cast<unsigned>(i)))};
  });
  for (int i = 0; i < 64; ++i) {
    const int first = i / 32 * 32;
    EXPECT_EQ(got[i][0], first + 3);
    EXPECT_EQ(got[i][1], i ^ 16);
    EXPECT_EQ(got[i][2], i % 32 < 4 ? i : i - 4);
    EXPECT_EQ(got[i][3], i / 32 == 0 ? 1 : 3);
    EXPECT_EQ(got[i][4], first + 31);
  }
}

TEST(HalfWavesWithAMistake, OneLaneGivesItsNeighboursNumber) {
  BlockExecutor executor({.wave_lanes = 64, .mistaken_lane = 6});
  executor.run({1}, {64}, 0, [&] {
    const int i = static_cast<int>(threadIdx.x), first = i / 32 * 32;
    EXPECT_EQ(shuffle(i, 6), first + 7);
    EXPECT_EQ(shuffle(i, 7), first + 7);
    EXPECT_EQ(shuffle_xor(i, 1), i ^ 1);
  });
}

/// [16, 16] by [16, 8], of small integers: sums are exact in any order.
template <typename T>
void expect_product(BlockExecutor& executor, const std::vector<float>& a,
                    const std::vector<float>& b) {
  std::vector<float> made(16 * 8, -1);
  executor.run({1}, {32}, 0, [&] {
    const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
    const auto of_a = [&](int row, int k) { return pack<T>(a[row * 16 + k], a[row * 16 + k + 1]); };
    const auto of_b = [&](int k) { return pack<T>(b[k * 8 + g], b[(k + 1) * 8 + g]); };
    float c[4] = {1, 1, 1, 1};
    multiply<T>(c, of_a(g, 2 * t), of_a(g + 8, 2 * t), of_a(g, 2 * t + 8), of_a(g + 8, 2 * t + 8),
                of_b(2 * t), of_b(2 * t + 8));
    made[g * 8 + 2 * t] = c[0];
    made[g * 8 + 2 * t + 1] = c[1];
    made[(g + 8) * 8 + 2 * t] = c[2];
    made[(g + 8) * 8 + 2 * t + 1] = c[3];
  });
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float expected = 1;
      for (int k = 0; k < 16; ++k) expected += a[row * 16 + k] * b[k * 8 + column];
      EXPECT_EQ(made[row * 8 + column], expected) << row << "," << column;
    }
  }
}

TEST_P(HalfWaves, FragmentsMultiply) {
  std::vector<float> identity(256), numbers(256), other(128);
  for (int i = 0; i < 16; ++i) identity[17 * i] = 1;
  for (int i = 0; i < 256; ++i) numbers[i] = static_cast<float>(i * 37 % 23 - 11);
  for (int i = 0; i < 128; ++i) other[i] = static_cast<float>(i * 29 % 19 - 9);
  expect_product<BFloat16>(executor_, identity, other);
  expect_product<BFloat16>(executor_, numbers, other);
  expect_product<Float16>(executor_, numbers, other);
  for (const int hot : {0, 1, 8, 37, 127}) {
    std::vector<float> one(128);
    one[hot] = 1;
    expect_product<Float16>(executor_, numbers, one);
  }
}

TEST_P(HalfWaves, MatricesOfSharedMemoryBecomeOperands) {
  // Four matrices of eight lines of 16 bytes: number 64 m + 8 line + column.
  alignas(16) std::array<uint16_t, 256> shared{};
  for (int i = 0; i < 256; ++i) shared[i] = static_cast<uint16_t>(i);
  std::array<std::array<uint32_t, 8>, 32> got{};
  executor_.run({1}, {32}, 0, [&] {
    const int lane = static_cast<int>(threadIdx.x);
    uint32_t straight[4], turned[4];
    load_matrices(straight, shared_address(&shared[8 * lane]));
    load_turned(turned, shared_address(&shared[8 * lane]));
    for (int m = 0; m < 4; ++m) got[lane][m] = straight[m], got[lane][4 + m] = turned[m];
  });
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int m = 0; m < 4; ++m) {
      const int first = 64 * m + 8 * g + 2 * t;
      EXPECT_EQ(got[lane][m], static_cast<uint32_t>(first | (first + 1) << 16));
      const int low = 64 * m + 8 * (2 * t) + g;
      EXPECT_EQ(got[lane][4 + m], static_cast<uint32_t>(low | (low + 8) << 16));
    }
  }
}

TEST_P(HalfWaves, PairsOfCodesWidenToHalves) {
  executor_.run({1}, {1}, 0, [&] {
    const uint32_t codes = pack_fp8(-3.5F, 1000.0F);
    const float2 wide = unpack<Float16>(unpack_fp8(codes));
    EXPECT_EQ(wide.x, -3.5F);
    EXPECT_EQ(wide.y, 448.0F);
  });
}

}  // namespace
}  // namespace slime::kernels::cuda
