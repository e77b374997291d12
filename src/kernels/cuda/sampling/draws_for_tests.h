#pragma once

/// Draws that tests compare with those of the CPU.

#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/cpu/noisy_logits_for_tests.h"
#include "kernels/cpu/sample.h"

namespace slime::kernels {

inline constexpr float kNever = -std::numeric_limits<float>::infinity();
inline constexpr int64_t kSmallVocab = 20011;   // five chunks, the last one ragged
inline constexpr int64_t kLargeVocab = 151936;  // 38 chunks

struct Draw {
  SampleOptions options;
  std::vector<float> logits;
};

}  // namespace slime::kernels
