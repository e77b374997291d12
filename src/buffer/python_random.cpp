#include "buffer/python_random.h"

#include <bit>
#include <numeric>

#include "core/error.h"

namespace slime::buffer {
namespace {

/// The 32-bit words of |seed|, least significant first, at least one.
std::vector<uint32_t> key_of(int64_t seed) {
  const uint64_t magnitude =
      seed < 0 ? uint64_t{0} - static_cast<uint64_t>(seed) : static_cast<uint64_t>(seed);
  std::vector<uint32_t> key{static_cast<uint32_t>(magnitude)};
  if (magnitude >> 32 != 0) key.push_back(static_cast<uint32_t>(magnitude >> 32));
  return key;
}

}  // namespace

PythonRandom::PythonRandom(int64_t seed) {
  state_[0] = 19650218U;
  for (uint32_t i = 1; i < kSize; ++i) {
    state_[i] = 1812433253U * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  }
  const std::vector<uint32_t> key = key_of(seed);
  std::size_t i = 1;
  std::size_t j = 0;
  const auto advance = [&] {
    if (++i == kSize) {
      state_[0] = state_[kSize - 1];
      i = 1;
    }
  };
  for (std::size_t round = 0; round < kSize;
       ++round) {  // max(624, key length), and keys have 1 or 2 words
    const uint32_t previous = state_[i - 1] ^ (state_[i - 1] >> 30);
    state_[i] = (state_[i] ^ (previous * 1664525U)) + key[j] + static_cast<uint32_t>(j);
    advance();
    j = (j + 1) % key.size();
  }
  for (std::size_t round = 1; round < kSize; ++round) {
    const uint32_t previous = state_[i - 1] ^ (state_[i - 1] >> 30);
    state_[i] = (state_[i] ^ (previous * 1566083941U)) - static_cast<uint32_t>(i);
    advance();
  }
  state_[0] = 0x80000000U;
}

void PythonRandom::refill() {
  constexpr std::size_t kMiddle = 397;
  for (std::size_t i = 0; i < kSize; ++i) {
    const uint32_t y = (state_[i] & 0x80000000U) | (state_[(i + 1) % kSize] & 0x7fffffffU);
    state_[i] = state_[(i + kMiddle) % kSize] ^ (y >> 1) ^ ((y & 1U) != 0 ? 0x9908b0dfU : 0U);
  }
  position_ = 0;
}

uint32_t PythonRandom::next() {
  if (position_ == kSize) refill();
  uint32_t y = state_[position_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680U;
  y ^= (y << 15) & 0xefc60000U;
  return y ^ (y >> 18);
}

uint32_t PythonRandom::below(uint32_t limit) {
  check(limit > 0, "a random number is drawn below a positive limit");
  const int unused_bits = std::countl_zero(limit);
  uint32_t drawn = next() >> unused_bits;
  while (drawn >= limit) drawn = next() >> unused_bits;
  return drawn;
}

std::vector<int64_t> epoch_order(int64_t num_rows, int64_t seed, int64_t epoch) {
  check(num_rows >= 0 && num_rows < int64_t{1} << 32, "a data set has fewer than 2^32 rows");
  std::vector<int64_t> order(static_cast<std::size_t>(num_rows));
  std::iota(order.begin(), order.end(), 0);
  PythonRandom random(seed + epoch);
  for (std::size_t i = order.size(); i-- > 1;) {
    std::swap(order[i], order[random.below(static_cast<uint32_t>(i + 1))]);
  }
  return order;
}

}  // namespace slime::buffer
