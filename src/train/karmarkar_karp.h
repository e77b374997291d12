#pragma once

/// The largest differencing method (N. Karmarkar, R. Karp, 1982) for k partitions, with the total
/// order of spec section 12.4, so that every rank and every implementation gets the same answer.

#include <cstdint>
#include <span>
#include <vector>

namespace slime::train {

/// Partitions of the indices of `weights` into k sets of similar sums, indices ascending inside
/// each. equal_size: all sets have the same number of items, which k must divide. Throws
/// ConfigError when there are fewer items than sets.
std::vector<std::vector<int64_t>> partition_evenly(std::span<const double> weights, int64_t k,
                                                   bool equal_size);

}  // namespace slime::train
