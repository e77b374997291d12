#pragma once

/// The samples of a rollout step on one rank as functions of the user's see them before it is trained:
/// what may compute the advantages, and what may change the columns once they are there.
///
/// Dimensions: T response tokens of these samples, end to end in their order.

#include <functional>
#include <vector>

#include "algo/advantage.h"
#include "core/tensor.h"
#include "train/schedule.h"
#include "train/train_batch.h"

namespace slime::train {

/// On the CPU; undefined tensors: this run has no such column.
struct UsersTable {
  const TrainBatch& batch;
  Indices samples;   // those that are trained, in the order of the batch
  Tensor trained_T;  // bool
  Tensor old_T;      // log-probs of the old policy, where a pass of their own made them
  Tensor ref_T;      // of the reference
  Tensor engine_T;   // as the rollout engine reported them
  Tensor teacher_T;  // of the teacher
  Tensor value_T;    // of the critic
  Tensor kl_T;       // divergence inside the token rewards; zeros without kl_coef
  Tensor advantage_T;
  Tensor return_T;
};

/// Advantages and returns of all its tokens. Throws where the user's code failed.
using UsersAdvantageFn = std::function<algo::Advantages(const UsersTable&)>;
/// Puts columns in the place of those it changed. `rollouts_done`: calls of train() before this one.
using PostprocessFn = std::function<void(int64_t rollouts_done, UsersTable& table)>;

}  // namespace slime::train
