#pragma once

/// A loss of the user's, in the place of the built-in ones: what it is given for each micro-batch, and
/// what it gives back. Who calls the user's code implements LossFn (loop/users_functions.h); the
/// trainer goes on from the gradients.
///
/// Dimensions: T response tokens of the micro-batch, as in algo/packed.h; L tokens of its samples,
/// prompts included, end to end in the order of MicroBatch::samples; V vocabulary.

#include <functional>

#include "algo/loss.h"
#include "core/tensor.h"
#include "train/micro_batch.h"
#include "train/train_batch.h"

namespace slime::train {

/// On the host also where the network is on a GPU, without gradient, in the accumulation precision of the network (float32, or float64
/// for a float64 model). Undefined tensors: this run has no such column.
struct LossInput {
  const TrainBatch& batch;
  const MicroBatch& micro_batch;
  /// logprob_T and entropy_T are those of the weights that are trained; old_T is undefined where they
  /// are the old policy's as well.
  algo::PolicyColumns columns;
  Tensor teacher_T;  // log-probs of the teacher of on-policy distillation
  Tensor value_T;    // of the critic
  Tensor return_T;
  bool has_entropy_gradient = false;  // --entropy-coef: LossResult::entropy_gradient_T counts
  int64_t num_tokens = 0;             // L
  int64_t vocabulary = 0;             // V
  /// Writes the logits of each token, not divided by the temperature, into [L, V] numbers, which may be
  /// on the network's device or on the host.
  std::function<void(const Tensor& logits_LV)> write_logits;
};

/// Un-scaled sums over the micro-batch, as algo::Loss has them: the trainer divides once. Gradients are
/// those of `loss` by what was given, of logits on any device; undefined ones are zeros.
struct LossResult {
  double loss = 0;
  algo::MetricSums metrics;
  Tensor logprob_gradient_T;
  Tensor entropy_gradient_T;
  Tensor logits_gradient_LV;
};

/// Throws where the user's code failed, or gave a number that is not finite: the run ends with what()
/// as the reason.
using LossFn = std::function<LossResult(const LossInput&)>;

}  // namespace slime::train
