#pragma once

/// Rows of one tensor dealt to the ranks of a group, some to each, in the order of the ranks; a rank
/// may have none. Four ways between a rank's rows and those of all, by what is the same on all ranks
/// and what is a part of a sum:
///
///   forward                                backward
///   own rows of what all ranks have        all rows, from those who have them
///   all rows, from those who have them     own rows of a gradient that all ranks have
///   all rows, from those who have them     own rows of the sum of what the ranks have
///   own rows of the sum of what they have  all rows, from those who have them
///
/// With one rank all of this is the identity.
///
/// Dimensions: T rows of all ranks, L of this one.

#include <cstdint>
#include <vector>

#include "comm/rank_group.h"
#include "core/tensor.h"

namespace slime::model {

struct RowShares {
  comm::RankGroup& ranks;
  std::vector<int64_t> counts;  // of each rank

  int64_t own() const { return counts[static_cast<size_t>(ranks.rank())]; }
  int64_t begin() const;  // of the own rows, among all
  int64_t total() const;
};

/// Shares of ceil(T / ranks) rows; the last ones may have fewer.
RowShares equal_rows(int64_t num_rows, comm::RankGroup& ranks);
/// Asks all ranks how many rows they have; waits for their answers.
RowShares told_rows(int64_t own_rows, comm::RankGroup& ranks);

/// [L, ...] of [T, ...], which is the same on all ranks; so is its gradient.
Tensor own_rows(const Tensor& x_T, const RowShares& shares);
/// [T, ...] of [L, ...]; all ranks bring the same gradient.
Tensor joined_rows(const Tensor& x_L, const RowShares& shares);
/// [T, ...] of [L, ...]; each rank brings a part of the gradient.
Tensor gathered_rows(const Tensor& x_L, const RowShares& shares);
/// [L, ...] of [T, ...] of which each rank has a part of the sum; `partial_T` is not kept.
Tensor summed_rows(const Tensor& partial_T, const RowShares& shares);

}  // namespace slime::model
