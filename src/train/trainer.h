#pragma once

/// The trainer of one rank: a TrainBatch, or its share of one, to new weights.
///
///   train(batch):   schedule
///                   -> old and reference log-probs, where the algorithm needs them
///                   -> advantages
///                   -> per training step: forward, loss, backward of each micro-batch;
///                      clip; AdamW; learning rate
///
/// Gradients are accumulated un-scaled and divided once, so they do not depend on packing, prefix
/// sharing, micro-batch split or the number of ranks. Metrics are returned, named as the original
/// names them (train/loss, rollout/advantages, perf/train_time); they are those of all ranks and
/// the same on each, except rates (perf/actor_train_tflops is of this rank).

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "algo/advantage.h"
#include "algo/loss.h"
#include "algo/preference_loss.h"
#include "comm/mesh.h"
#include "core/clock.h"
#include "model/network.h"
#include "train/critic.h"
#include "train/given_pass.h"
#include "train/lr_schedule.h"
#include "train/micro_batch.h"
#include "train/optimizer.h"
#include "train/packing.h"
#include "train/router_training.h"
#include "train/schedule.h"
#include "train/share.h"
#include "train/train_batch.h"
#include "train/users_loss.h"
#include "train/users_table.h"

namespace slime::train {

enum class Objective { kPolicy, kSupervised, kPreference };

struct TrainConfig {
  Objective objective = Objective::kPolicy;
  algo::AdvantageConfig advantage = algo::GroupRelative{};
  /// Of the kl_coef inside `advantage`; the KL loss has its own.
  algo::KlType kl_type = algo::KlType::kK1;
  bool normalize_advantages = false;
  /// On-policy distillation: advantage - coef * (old log-prob - teacher's), for any estimator.
  std::optional<double> distillation_coef;
  bool has_teacher_model = false;  // the teacher scores here; otherwise samples bring its log-probs
  algo::Preference preference;     // of Objective::kPreference
  algo::PolicyLossConfig policy;
  /// Functions of the user's, where there are any; what they throw ends the run.
  LossFn users_loss;  // in the place of the policy's loss; `policy` says which columns it gets
  UsersAdvantageFn
      users_advantage;        // in the place of `advantage` and of distillation; whitening follows
  PostprocessFn postprocess;  // after the advantages
  /// Parts of the policy's loss of one micro-batch; `weights` are those of its tokens with other masks.
  std::function<algo::PolicyFunctions(const TrainBatch& batch, const MicroBatch& micro_batch,
                                      std::function<Tensor(const Tensor& kept_T)> weights)>
      policy_functions;
  /// Before each pass without gradient: "ref_", "teacher_", or "" for the policy's own.
  std::function<void(const std::string& store_prefix)> before_scoring;
  /// Before each training step, with clean gradients: calls of train() before this one, over the whole
  /// run, and the step's place in this one.
  std::function<void(int64_t rollouts_done, int64_t step)> before_train_step;
  /// The network's draft layer is trained too, and its loss counts so much (train/draft_training.h).
  std::optional<double> draft_loss_scale;
  algo::Reduction reduction = algo::Reduction::kPerRollout;
  double temperature = 1.0;  // of the rollout; > 0
  /// Whose choices of experts training visits again (spec section 14): those of the pass for old
  /// log-probs, or of the engine, which that pass visits as well.
  enum class RoutingReplay { kNone, kOldPass, kEngine };
  RoutingReplay routing_replay = RoutingReplay::kNone;
  model::RouterLosses router_losses;
  double router_bias_update_rate = 0;  // of selection biases; 0: they stay
  /// The engine's log-probs are this trainer's to the bit, and checked to be: see on_policy.h.
  bool true_on_policy = false;
  /// Forward passes have the order of sums of that, and nothing is compared: for measurements.
  bool in_training_arithmetic = false;
  /// Gradients of attention are added in one order, on a GPU too (TreeAttentionShape::ordered_backward).
  bool orders_backward = false;
  bool replays_top_p = false;   // log-probs are taken in the nucleus the token was sampled from
  bool keep_old_actor = false;  // old log-probs come from weights that lag (spec 4.5)
  int64_t update_weights_interval = 1;  // rollout steps between hand-overs to the engine
  std::optional<CriticConfig> critic;   // needed by, and only by, algo::Gae

  BatchingConfig batching;
  PackingOptions packing;
  model::Recompute recompute = model::Recompute::kNone;
  /// On a GPU of which nobody else takes memory during a step, logits of a micro-batch wait for its backward
  /// in what is free (train/kept_logits.h). Stages of a pipeline have several of them on their way.
  bool keeps_logits = true;
  /// Gradients of data-parallel ranks are summed so many at a time (train/gradient_reduction.h).
  int64_t bucket_elements = 40'000'000;

  AdamConfig adam;
  LrSchedule lr;
  std::vector<std::string> frozen;      // names of tensors that are not trained
  double clip_grad = 1.0;               // L2 norm over all weights; 0: no clipping
  bool stateless_adam = false;          // every step starts from zero moments
  bool reset_optimizer_states = false;  // zero moments at the start of each rollout step
  /// Every so many rollout steps the reference becomes the actor; 0: never.
  int64_t ref_update_interval = 0;
  /// In a row, for gradients that are not finite, of the actor or of the critic; one more is
  /// TrainReport::stopped.
  int max_skipped_steps = 3;
};

/// Whether `config` needs a reference model: a KL loss, or a KL penalty in the token rewards.
bool needs_reference(const TrainConfig& config);

/// The networks besides the trained one, each owned, of its shape; null where not needed.
struct OtherNetworks {
  std::unique_ptr<model::Network> reference;  // needs_reference(config)
  std::unique_ptr<model::Network> teacher;    // config.has_teacher_model
  /// config.keep_old_actor: with the trained tensors of the network, whatever their numbers.
  std::unique_ptr<model::Network> old_actor;
  std::unique_ptr<model::Network> critic;  // config.critic
};

/// Throws BugError for a contradiction: flags that make one are refused by their rules
/// (config/rules.h).
void check_config(const TrainConfig& config);

using Metrics = std::map<std::string, double>;

struct StepReport {
  int64_t step = 0;  // optimizer updates before this one, over the whole run
  /// train/loss, train/pg_loss, ..., train/grad_norm, train/lr-pg_0, train/global_batch_size.
  Metrics metrics;
  std::string skipped;         // why the weights were not updated; empty: they were
  std::string critic_skipped;  // the same of the critic's
};

struct TrainReport {
  std::vector<StepReport> steps;
  /// Samples of the whole batch, by index, of each step that was planned; `steps` has fewer when
  /// training stopped.
  std::vector<Indices> samples_of_steps;
  std::string stopped;  // why training must not go on; empty: it may
  /// Per sample of the batch, or share, and response token: log-probs before the sample was first
  /// trained on, for people who compare them with the engine's. Empty for samples beyond the last
  /// full step.
  std::vector<std::vector<float>> log_probs;
  /// Per sample of the batch, or share: mean advantage of its trained tokens. NaN for samples without one,
  /// as those of log_probs that are empty; empty where none was computed.
  std::vector<float> advantages;
  /// rollout/log_probs, rollout/advantages, rollout/rewards, ...: means over the batch.
  Metrics rollout;
  Metrics perf;            // seconds and rates: perf/actor_train_time, perf/actor_train_tflops, ...
  int64_t num_tokens = 0;  // of the samples trained, on all ranks
  /// Of those the network computed: fewer where prefixes were shared.
  int64_t num_computed_tokens = 0;
};

/// Per-token columns of a batch, computed once per rollout step.
struct Columns;

/// What a loss is made of: hidden states of the rank's rows, where the network is, and [T] numbers on
/// the CPU.
struct ScoredPass {
  Tensor hidden_LH;
  kernels::LogProbs scores;
};

/// Log-probs and entropies of response tokens under the current weights; [response length] each.
struct ScoredSample {
  std::vector<double> log_probs;
  std::vector<double> entropies;
};

/// What a checkpoint keeps of a trainer besides weights and moments.
struct TrainerState {
  int64_t num_updates = 0;       // Adam's step counter
  int64_t num_steps = 0;         // training steps, skipped ones included
  int64_t samples_done = 0;      // rollout executions the learning rate schedule has seen
  int64_t rollouts_done = 0;     // calls of train()
  int64_t skipped_in_a_row = 0;  // training steps, up to the last
  int64_t critic_skipped_in_a_row = 0;
  CriticState critic;
  bool operator==(const TrainerState&) const = default;
};

/// One class because its members are one training step's: network, optimizer, the ranks they lie on and
/// the state that a checkpoint keeps.
class Trainer final {
 public:
  /// `network`, `clock` and `mesh`, on which all networks are, outlive the trainer; its weights are
  /// updated in place. Throws BugError as check_config() does, and for a network that is needed
  /// and missing.
  Trainer(model::Network& network, const TrainConfig& config, const Clock& clock,
          OtherNetworks others = {}, const comm::Mesh& mesh = comm::Mesh::single());
  ~Trainer();
  Trainer(const Trainer&) = delete;

  /// One rollout step of the only rank: floor(executions / G) training steps. Throws ConfigError
  /// when the batch holds less than one step. Of a batch that is scored only, log-probs alone.
  TrainReport train(const TrainBatch& batch);

  /// Gives the gradients' memory back until the next train(): 4 bytes per weight that nobody reads
  /// between two steps.
  void release_gradients();

  /// What each of config().batching.dp ranks has to train of a batch. Throws ConfigError as
  /// train().
  std::vector<BatchShare> divide(const TrainBatch& batch) const;
  /// One rollout step of one rank of several; all call it together. Throws comm::GroupError.
  TrainReport train(const BatchShare& share);

  // Steps that somebody else decides, of one rank (train/given_pass.h): gradients add up until apply().

  /// Gradients of `batch` by `loss`, added to those that are there. A loss that is not finite throws
  /// ConfigError, and the gradients stay as they were.
  GivenPass add_gradients(const GivenBatch& batch, const GivenLoss& loss);
  /// The same without gradients.
  GivenPass look_at(const GivenBatch& batch, const GivenLoss& loss);
  /// One update with the gradients that were added, which are gone afterwards.
  GivenUpdateReport apply(const GivenUpdate& update);
  /// Somebody wrote the weights: gradients and the optimizer's moments are gone.
  void begin_again();

  /// The loop tells that the engine got these weights: what keep_old_actor counts by.
  void weights_published();

  /// Scores the responses of all samples, without gradient: what engine and trainer are compared
  /// by.
  std::vector<ScoredSample> score(std::span<const TrainSample> samples);

  /// Loss sums and gradients of the whole batch as one training step, left un-scaled in
  /// network().weights().grad(); no update. For tests and measurements: what train() does before it
  /// clips.
  algo::MetricSums accumulate_gradients(const TrainBatch& batch);
  /// The same for the share of one training step, with the sums of all ranks; each rank has the
  /// gradients of its shard.
  algo::MetricSums accumulate_gradients(const BatchShare& share);

  model::Network& network() { return network_; }
  model::Network* reference() { return others_.reference.get(); }
  /// Whether it cannot be read from where it came from any more.
  bool reference_moves() const { return config_.ref_update_interval > 0 || keeps_reference_; }
  /// The reference is that of a checkpoint, and goes into the next ones.
  void keep_reference() { keeps_reference_ = true; }
  /// Until the state of all optimizers is in memory as the last update left it.
  void wait_for_optimizers();
  model::Network* old_actor() { return others_.old_actor.get(); }
  /// Weights of the policy that the engine draws from; undefined without keep_old_actor.
  const Tensor& rollout_actor() const { return rollout_actor_; }
  Critic* critic() { return critic_ ? &*critic_ : nullptr; }
  Optimizer& optimizer() { return optimizer_; }
  const comm::Mesh& mesh() const { return mesh_; }
  const TrainConfig& config() const { return config_; }

  /// How often weights, moments or the reference were changed, in this process.
  int64_t num_changes() const { return num_changes_; }

  TrainerState state() const;
  void set_state(const TrainerState& state);

 private:
  PlanOptions plan_options() const;
  GivenPass pass_over(const GivenBatch& batch, const GivenLoss& loss, bool adds_gradients);
  TrainReport train_planned(const TrainBatch& batch, std::vector<StepPlan> plans,
                            Clock::TimePoint start);
  /// A function of the user's may change masks and with them the plans.
  Columns prepare(const TrainBatch& batch, std::vector<StepPlan>& plans, TrainReport& report);
  Columns score_columns(const TrainBatch& batch, std::vector<StepPlan>& plans, TrainReport& report);
  UsersTable users_table(const TrainBatch& batch, const std::vector<StepPlan>& plans,
                         const Columns& columns) const;
  void users_advantages(const TrainBatch& batch, const std::vector<StepPlan>& plans,
                        Columns& columns);
  void postprocess(const TrainBatch& batch, std::vector<StepPlan>& plans, Columns& columns);
  /// What each token counts with these masks in the place of the samples' own.
  Tensor token_weights_of(const TrainBatch& batch, const MicroBatch& micro_batch,
                          const Tensor& mask_T) const;
  /// One pass without gradient over the micro-batches of all steps. Routers of the reference and of
  /// teachers are free; those of the policy replay or are recorded, as `routing_replay` says.
  enum class Scores { kOfPolicy, kOfAnother };
  void score_into(model::Network& network, Scores whose, std::vector<StepPlan>& plans,
                  TokenColumn& log_probs, TokenColumn* entropies);
  bool has_experts() const;
  void compute_advantages(const TrainBatch& batch, const std::vector<StepPlan>& plans,
                          Columns& columns);
  /// Column of the divergence inside the token rewards, where there is one.
  void add_divergence(const MicroBatch& micro_batch, Columns& columns);
  /// The advantages of one micro-batch, before whitening.
  algo::Advantages advantages_of(const TrainBatch& batch, const MicroBatch& micro_batch,
                                 Columns& columns);
  /// Calls `pass` with the reference model: a network of its own, or this one without its adapters.
  void as_reference(const std::function<void(model::Network&)>& pass);
  /// Column of the old policy's log-probs that advantages are taken from.
  const TokenColumn& old_policy(const Columns& columns) const;
  algo::Loss loss_of(const TrainBatch& batch, const MicroBatch& micro_batch, const ScoredPass& pass,
                     const Tensor& advantage_T, const Columns& columns);
  algo::Loss users_loss(const TrainBatch& batch, const MicroBatch& micro_batch,
                        const ScoredPass& pass, const algo::PolicyColumns& columns_in,
                        const Columns& columns);
  /// Names the first token of a loss that is not finite.
  std::string describe_bad_loss(const TrainBatch& batch, const MicroBatch& micro_batch,
                                const ScoredPass& pass, const Columns& columns, double loss) const;
  /// Of a micro-batch that has come through the layers.
  kernels::LinearLogProbOptions score_options(const Tensor& hidden_LH) const;
  /// Forward and backward of all micro-batches; names those whose loss is not finite. `reduces`: the
  /// gradients are reduced next, and a part of that may begin.
  algo::MetricSums accumulate(const TrainBatch& batch, const StepPlan& plan, Columns& columns,
                              std::vector<std::string>& problems, bool reduces);
  /// Gradients of the draft layer of a micro-batch. Its part of the metric train/mtp_loss.
  double train_draft_layer(const MicroBatch& micro_batch, const Tensor& hidden_LH,
                           const StepPlan& plan, std::vector<std::string>& problems);
  /// `place`: of the step in its rollout step.
  StepReport train_step(const TrainBatch& batch, const StepPlan& plan, int64_t place,
                        Columns& columns);
  /// Says which samples a gradient that is not finite comes from, where no loss gave it away.
  /// Computes this rank's gradients again, micro-batch by micro-batch, and leaves them undefined.
  std::string trace_gradients(const TrainBatch& batch, const StepPlan& plan, Columns& columns);

  StepReport train_critic_step(const TrainBatch& batch, const StepPlan& plan,
                               const Columns& columns);
  /// The reasons of all ranks, each with its rank when there are several.
  std::string join_problems(const std::vector<std::string>& problems);

  const comm::Mesh& mesh_;
  comm::RankGroup& ranks_;  // the same weights and other samples
  model::Network& network_;
  TrainConfig config_;
  algo::AdvantageFn advantage_fn_;
  FlopsModel flops_;
  const Clock& clock_;
  OtherNetworks others_;
  std::optional<Critic> critic_;
  Tensor rollout_actor_;  // flat weights, owned; see rollout_actor()
  Optimizer optimizer_;
  bool keeps_reference_ = false;
  bool has_given_gradients_ = false;  // of add_gradients(), since the last update
  int64_t num_changes_ = 0;
  TrainerState state_;
  std::vector<RoutingOfPass> routing_;  // of the micro-batches that accumulate() computed last
};

}  // namespace slime::train
