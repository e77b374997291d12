#pragma once

/// PPO's critic: a network of the actor's shape with a scalar head, trained beside the actor on the
/// same micro-batches (spec section 8).
///
/// In a rollout step the trainer asks it for values first; advantages and returns come from them;
/// then the critic trains on the returns, then the actor on the advantages. So the actor uses
/// values from before this step's update of the critic. Values are never divided by a temperature.

#include <memory>
#include <vector>

#include "model/network.h"
#include "model/value_head.h"
#include "train/columns.h"
#include "train/lr_schedule.h"
#include "train/micro_batch.h"
#include "train/optimizer.h"

namespace slime::train {

struct CriticConfig {
  double value_clip = 0.2;
  AdamConfig adam;
  LrSchedule lr;
  double clip_grad = 1.0;
  double init_std = 0.02;  // of the head's weight (Megatron: init-method-std)
  uint64_t seed = 1234;
  int64_t num_critic_only_steps = 0;  // rollout steps before the actor trains too
};

/// What a checkpoint keeps of a critic besides weights and moments.
struct CriticState {
  int64_t num_updates = 0;
  int64_t samples_done = 0;
  bool operator==(const CriticState&) const = default;
};

class Critic final {
 public:
  /// `network` is owned: the actor's shape, its output layer unused. `mesh` outlives the critic.
  Critic(std::unique_ptr<model::Network> network, const CriticConfig& config,
         const comm::Mesh& mesh = comm::Mesh::single());
  Critic(const Critic&) = delete;

  /// Values of all response tokens, without gradient.
  void value_into(const std::vector<StepPlan>& plans, TokenColumn& values);

  struct Step {
    /// value_loss, value_clipfrac, grad_norm, lr-pg_0, each with the prefix train/critic-.
    std::map<std::string, double> metrics;
    bool is_updated = true;     // false: gradients were not finite, and the weights are as before
    Indices bad_samples;        // of this rank: whose value loss is not finite
    std::string bad_gradients;  // names of this rank's tensors with such gradients
  };
  /// One training step on columns.critic_returns, with columns.values as the old values.
  Step train_step(const StepPlan& plan, const Columns& columns);

  const CriticConfig& config() const { return config_; }
  model::Network& network() { return *network_; }
  model::ValueHead& head() { return head_; }
  Optimizer& network_optimizer() { return network_optimizer_; }
  Optimizer& head_optimizer() { return head_optimizer_; }
  /// Zero moments and step counters.
  void reset_optimizers();
  CriticState state() const;
  void set_state(const CriticState& state);

 private:
  const comm::Mesh& mesh_;
  CriticConfig config_;
  std::unique_ptr<model::Network> network_;
  model::ValueHead head_;
  Optimizer network_optimizer_;
  Optimizer head_optimizer_;
  int64_t samples_done_ = 0;
};

/// 1 - variance(return - value) / variance(return) over the trained tokens of the batch: 1 for a
/// critic that knows, 0 for one that says the mean and where all returns are equal. Of all ranks.
double explained_variance(const std::vector<StepPlan>& plans, const Columns& columns,
                          comm::RankGroup& ranks);

}  // namespace slime::train
