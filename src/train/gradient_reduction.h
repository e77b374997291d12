#pragma once

/// Gradients of a training step on their way to the ranks that own them (train/shards.h).
///
/// The flat buffer lies in the order of the layers, so gradients become complete from its end to its
/// beginning. Buckets of it are summed while the backward of the step's last micro-batch goes on, on a
/// GPU in a stream of their own:
///
///   backward   | head | layer 35 | layer 34 | ...      | layer 0 | embedding
///   reduction          | bucket 0   | bucket 1 | ...             | bucket n     wait
///
/// All ranks sum the same buckets in the same order, whatever their micro-batches are. Tensor-parallel
/// ranks and pipeline stages first sum what they share, so there the one bucket comes last. So it does
/// where experts lie on several ranks, and their gradients, behind all others, are summed after it.

#include <cstdint>
#include <vector>

#include "comm/mesh.h"
#include "comm/side_stream.h"
#include "model/weights.h"

namespace slime::train {

class GradientReduction final {
 public:
  /// Both outlive the object.
  GradientReduction(model::Weights& weights, const comm::Mesh& mesh);

  /// Elements of the flat buffer at which gradients are said to be complete, descending, the same on all
  /// ranks; buckets of at least `bucket_elements` begin at some of them.
  void set_marks(const std::vector<int64_t>& marks, int64_t bucket_elements);

  /// What is in the gradients and what the backward that comes adds to them is the whole step.
  void begin_last_backward() { is_last_ = true; }
  /// Elements from `begin` on are as that backward leaves them. Outside of it nothing happens.
  void complete_from(int64_t begin);
  /// Sums what is left; then the gradients are reduced, in the current stream.
  void finish();

  /// A part of the flat buffer, the ranks that share it, and what each of them owns.
  struct Part {
    comm::Range elements;
    comm::RankGroup& ranks;
    std::vector<comm::Range> shards;

    const comm::Range& own() const { return shards[static_cast<std::size_t>(ranks.rank())]; }
  };
  /// The first one's ranks are those of mesh.dp_cp(); see train/shards.h.
  const std::vector<Part>& parts() const { return parts_; }

 private:
  void sum_partial();
  void sum_over_stages();
  /// The buckets whose elements are complete.
  void reduce_from(int64_t begin);
  void reduce(const comm::Range& bucket);
  void reduce_experts();

  model::Weights& weights_;
  const comm::Mesh& mesh_;
  std::vector<Part> parts_;
  std::vector<comm::Range> buckets_;  // of the first part, from its end
  std::size_t next_ = 0;              // of them, this step
  bool is_last_ = false;
  comm::SideStream side_;
};

}  // namespace slime::train
