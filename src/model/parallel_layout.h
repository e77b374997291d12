#pragma once

/// How a model is cut over ranks, as data (DESIGN section 4). Sizes multiply to the world size;
/// tensor-parallel ranks are adjacent. World size one is the same code with full slices.

#include <cstdint>
#include <vector>

namespace slime::model {

struct ParallelLayout {
  int dp = 1;   // data
  int tp = 1;   // tensor
  int pp = 1;   // pipeline
  int cp = 1;   // context
  int ep = 1;   // expert
  int etp = 1;  // tensor inside experts
  int tp_rank = 0;
  int pp_rank = 0;
  int ep_rank = 0;

  bool is_single() const { return dp * tp * pp * cp * ep * etp == 1; }
  bool operator==(const ParallelLayout&) const = default;
};

/// Which part of a full tensor a rank holds: [begin, end) along dimension `dim`; dim -1 means all
/// of it.
struct Slice {
  int dim = -1;
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const Slice&) const = default;
};

/// The tp_rank-th of tp equal parts of `size` along `dim`. Throws ConfigError when it does not
/// divide.
Slice tensor_parallel_slice(const ParallelLayout& layout, int dim, int64_t size);

}  // namespace slime::model
