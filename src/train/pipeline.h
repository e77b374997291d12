#pragma once

/// Micro-batches through the network, which may lie on several pipeline stages: forward passes, what
/// the caller makes of hidden states, backward passes. One stage is the case in which nothing is sent.

#include <cstdint>
#include <functional>
#include <vector>

#include "comm/mesh.h"
#include "model/network.h"
#include "train/pass.h"

namespace slime::train {

/// A micro-batch, whether gradients of it are wanted, and what is asked of routers (train/pass.h).
struct PipelineItem {
  const MicroBatch* micro_batch;
  bool has_backward;
  RoutingOfPass* routing = nullptr;
};

/// Called on the last stage with the hidden states of an item: what is differentiated, a scalar, or
/// nothing (undefined). An item without a backward pass is computed without grad mode.
using AtEnd = std::function<Tensor(std::size_t item, const Pass& pass, const Tensor& hidden_LH)>;

/// All ranks of mesh.model() call it with the same items. Gradients are added into
/// network.weights().grad().
///
/// Where ranks with other samples meet at experts (comm::ParallelLayout::experts_join_samples), those of
/// mesh.dp() call it together too. Each has as many passes as the one with the most, of a token that
/// counts nowhere behind its own, and a backward wherever one of them has one.
void run_pipeline(model::Network& network, const comm::Mesh& mesh,
                  const std::vector<PipelineItem>& items, const AtEnd& at_end);

/// All micro-batches of these steps, without gradients.
std::vector<PipelineItem> items_of(const std::vector<StepPlan>& plans);

/// Whether `at_end` is called on this rank.
bool is_last_stage(const comm::Mesh& mesh);

/// A tensor that the last stage has, on all stages: `x` there, undefined on the others, of `sizes` and
/// `options`.
Tensor from_last_stage(const comm::Mesh& mesh, const Tensor& x, at::IntArrayRef sizes,
                       const at::TensorOptions& options);

}  // namespace slime::train
