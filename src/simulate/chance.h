#pragma once

/// Random numbers of a simulation: a function of its seed.

#include <cmath>
#include <cstdint>

#include "core/splitmix64.h"

namespace slime::simulate {

class Chance {
 public:
  explicit Chance(uint64_t seed) : state_(splitmix64(seed)) {}

  uint64_t next() { return splitmix64(state_ += kGoldenRatio64); }
  /// [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double uniform(double from, double to) { return from + (to - from) * uniform(); }
  /// from .. to, both included.
  int64_t between(int64_t from, int64_t to) {
    return from + static_cast<int64_t>(next() % static_cast<uint64_t>(to - from + 1));
  }
  bool happens(double probability) { return uniform() < probability; }
  /// Exponentially distributed.
  double waits(double mean) { return -mean * std::log(1 - uniform()); }

 private:
  uint64_t state_;
};

}  // namespace slime::simulate
