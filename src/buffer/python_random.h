#pragma once

/// CPython's `random` module, as far as shuffling needs it: the epoch order of a data set is
/// defined by `random.seed(seed + epoch); random.shuffle(order)`, so published runs can be repeated
/// row by row.
///
/// MT19937 (Matsumoto and Nishimura 1998) with CPython's seeding by array and its rejection
/// sampling (spec appendix B).

#include <array>
#include <cstdint>
#include <vector>

namespace slime::buffer {

/// Mersenne Twister in the state that `random.seed(seed)` leaves. A negative seed equals its
/// absolute value, as in Python.
class PythonRandom {
 public:
  explicit PythonRandom(int64_t seed);

  /// The next 32 bits, tempered.
  uint32_t next();

  /// Uniform in [0, limit). 0 < limit < 2^32.
  uint32_t below(uint32_t limit);

 private:
  static constexpr std::size_t kSize = 624;

  void refill();

  std::array<uint32_t, kSize> state_;
  std::size_t position_ = kSize;  // words of state_ already handed out
};

/// The order of epoch `epoch`: position k of the epoch holds row result[k]. num_rows < 2^32.
std::vector<int64_t> epoch_order(int64_t num_rows, int64_t seed, int64_t epoch);

}  // namespace slime::buffer
