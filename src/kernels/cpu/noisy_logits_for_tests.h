#pragma once

/// Normal logits for tests of sampling.

#include <cstdint>
#include <vector>

#include "core/random.h"

namespace slime::kernels {

inline std::vector<float> noisy_logits(int64_t vocab, double scale, uint64_t stream = 0) {
  std::vector<float> logits(vocab);
  for (int64_t v = 0; v < vocab; ++v) logits[v] = static_cast<float>(scale * normal(7, stream, v));
  return logits;
}

}  // namespace slime::kernels
