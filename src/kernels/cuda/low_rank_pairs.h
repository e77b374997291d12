#pragma once

/// Low-rank pairs (kernels/adapters.h) as the kernels beside products take them.

#include <ATen/ATen.h>

#include "kernels/adapters.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/products/low_rank.h"

namespace slime::kernels::cuda {

/// The two factors of a pair, of which one range of outputs is wanted. Either has the scale: whichever kernel is the
/// last to multiply uses it.
struct FactorsOfPair {
  LowRankFactor a, b;

  explicit FactorsOfPair(const PairRange& range, int column) {
    const LowRankPair& pair = *range.pair;
    const int rank = static_cast<int>(pair.a.value.size(0));
    a.values = array<float>(pair.a.value);
    a.pitch = pair.a.value.size(1);
    a.is_turned = true;
    a.end = static_cast<int>(a.pitch);
    b.values = array<float>(pair.b.value) + range.in_pair * rank;
    b.pitch = rank;
    b.begin = static_cast<int>(range.in_matrix);
    b.end = static_cast<int>(range.in_matrix + range.size);
    for (LowRankFactor* factor : {&a, &b}) {
      factor->rank = rank;
      factor->scale = static_cast<float>(pair.scale);
      factor->column = column;
    }
  }
};

}  // namespace slime::kernels::cuda
