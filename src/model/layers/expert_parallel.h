#pragma once

/// Experts that lie on several ranks, and rows that travel to them and back.
///
/// Every rank of a pipeline stage brings other rows: those of its data- and context-parallel index, and
/// of these its tensor-parallel share (sequence parallel: the rows that it has anyway). The ranks of an
/// expert-parallel group have count / ep experts each; the expert-tensor-parallel ranks have slices of
/// the same ones.
///
///   rows  -> those of all etp ranks -> sorted by expert -> to the experts' ranks (ep) -> products
///     -> back -> weighted sums of visits -> over etp: sums of slices, own rows
///
/// Rows are never dropped and numbers do not depend on where the experts are, except for the order of
/// the sums over etp.
///
/// All ranks of ep and etp call it together, also with no rows (train/pipeline.h keeps them in step).
///
/// Dimensions: L rows of this rank, K visits of each, H hidden.

#include "comm/mesh.h"
#include "core/tensor.h"
#include "kernels/experts.h"
#include "model/parallel_layout.h"

namespace slime::model {

struct ExpertParallel {
  /// Throws ConfigError where ep does not divide the experts, or etp their width.
  ExpertParallel(const comm::Mesh& mesh, int64_t num_experts, int64_t width);

  /// Those of `outputs` to which this one of the etp ranks adds biases. Throws ConfigError where they do
  /// not divide.
  comm::Range share_of_outputs(int64_t outputs) const;

  /// Experts are whole on each rank, and so are rows.
  bool is_alone() const { return tp.is_alone() && ep.is_alone() && etp.is_alone(); }

  comm::RankGroup& tp;
  comm::RankGroup& ep;
  comm::RankGroup& etp;
  int64_t num_experts;  // of all ranks
  int64_t first;        // this rank's experts: [first, first + count)
  int64_t count;
  int64_t width_begin;  // its slice of their width
  int64_t width_end;
};

/// [L, H]: kernels::experts() of rows that all ranks bring. `stack`, which outlives the backward, has
/// this rank's experts; expert_LK int64, numbers among all experts; weight_LK float32 (float64).
Tensor distributed_experts(const Tensor& x_LH, const Tensor& expert_LK, const Tensor& weight_LK,
                           const kernels::ExpertStack& stack, const ExpertParallel& where);

}  // namespace slime::model
