#pragma once

/// Parallel layout: the size of each axis and the coordinates of each rank, in Megatron's order;
/// pure arithmetic.
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
  /// The tensor-parallel ranks hold the residual stream cut by rows; with tp 1 there is no difference.
  bool sequence_parallel = false;
  /// Context-parallel ranks have runs of rows of the whole batch instead of pieces of each segment
  /// (model/context_rows.h).
  bool contiguous_context = false;
  /// Each tensor-parallel rank routes all rows to its slices of the experts, so that one sum a layer is
  /// enough; else its share of them. Without gradients.
  bool routes_all_rows = false;
  /// Pipeline: ranges of layers of each stage (interleaved when there are several), and how many layers
  /// the first and the last range have; 0: as many as the others.
  int chunks = 1;
  int first_layers = 0;
  int last_layers = 0;

  int world_size() const { return dp * tp * pp * cp; }
  int edp() const { return dp * tp * cp / (ep * etp); }  // expert data parallel
  /// Whether every rank has all of the model.
  bool holds_model_whole() const { return tp == 1 && pp == 1 && ep == 1 && etp == 1; }
  /// Whether ranks that compute different samples meet at experts: they go through their passes in step.
  bool experts_join_samples() const { return tp * cp % (ep * etp) != 0; }
  bool operator==(const ParallelLayout&) const = default;
};

/// Of an engine: its ranks have slices of all layers, experts among them.
ParallelLayout engine_layout(int num_ranks);

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
/// kModel: the ranks that compute the same samples (tp x cp x pp).
enum class Axis { kTp, kCp, kDp, kPp, kDpCp, kModel, kEtp, kEp, kEdp, kWorld };
constexpr int kNumAxes = 10;

/// "tp", "dp x cp": as messages name it.
const char* name_of(Axis axis);

/// World ranks of the group of `axis` that `rank` is in, ascending. A member's rank in the group is
/// its index here.
std::vector<int> members_of(const ParallelLayout& layout, Axis axis, int rank);

}  // namespace slime::comm
