#pragma once

/// How many ranks share which work, and which rank is where: pure arithmetic, Megatron's order of
/// ranks.
///
/// Dense layers: tensor-parallel ranks are neighbours, then context, then data, then pipeline
/// stages:
///
///   rank = tp + TP * (cp + CP * (dp + DP * pp))
///
/// Experts lie over the same ranks of a stage: tensor-parallel ranks of an expert are neighbours,
/// then the ranks that have other experts, then those that have the same (expert data parallel):
///
///   rank = etp + ETP * (ep + EP * (edp + EDP * pp))      EDP = TP * CP * DP / (ETP * EP)
///
/// Example: tp 2, dp 2, ep 4: ranks 0 1 | 2 3 are the tensor-parallel groups, 0 2 | 1 3 the
/// data-parallel ones, 0 1 2 3 the group of the experts.

#include <string>
#include <vector>

namespace slime::comm {

struct ParallelLayout {
  int dp = 1;   // data
  int tp = 1;   // tensor
  int pp = 1;   // pipeline
  int cp = 1;   // context
  int ep = 1;   // expert
  int etp = 1;  // tensor inside experts

  int world_size() const { return dp * tp * pp * cp; }
  int edp() const { return dp * tp * cp / (ep * etp); }  // expert data parallel
  bool operator==(const ParallelLayout&) const = default;
};

/// Throws ConfigError when a size is below one or the experts do not divide the ranks of a stage.
void validate(const ParallelLayout& layout);

/// Where a rank is on each axis.
struct Coordinates {
  int dp = 0;
  int tp = 0;
  int pp = 0;
  int cp = 0;
  int ep = 0;
  int etp = 0;
  int edp = 0;
  bool operator==(const Coordinates&) const = default;
};

Coordinates coordinates_of(const ParallelLayout& layout, int rank);

/// Along what the members of a group differ.
enum class Axis { kTp, kCp, kDp, kPp, kDpCp, kEtp, kEp, kEdp, kWorld };
constexpr int kNumAxes = 9;

/// "tp", "dp x cp": as messages name it.
const char* name_of(Axis axis);

/// World ranks of the group of `axis` that `rank` is in, ascending. A member's rank in the group is
/// its index here.
std::vector<int> members_of(const ParallelLayout& layout, Axis axis, int rank);

}  // namespace slime::comm
