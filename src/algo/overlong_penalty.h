#pragma once

/// DAPO's soft punishment of responses that are, or nearly are, cut off (arXiv 2503.14476, section
/// 3.4, equation 13), added to the reward before group normalisation.

#include <cstdint>

namespace slime::algo {

struct OverlongPenalty {
  int64_t max_length = 0;  // L_max, tokens of a response
  int64_t buffer = 0;      // L_cache: the last tokens before L_max, over which the penalty grows
  double factor = 1.0;     // the penalty at L_max; the paper's is 1
};

/// With s = L_max - L_cache:  0 up to s tokens;  factor (s - length) / L_cache up to L_max;
/// -factor beyond. 16384 with a buffer of 4096 gives -0.5 at 14336 tokens.
double overlong_penalty(const OverlongPenalty& how, int64_t length);

}  // namespace slime::algo
