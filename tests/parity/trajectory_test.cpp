// Reference training runs of the tiny qwen3 model, update by update
// (tests/fixtures/trajectory/README.md).

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/clock.h"
#include "rank_threads.h"
#include "train/checkpoint.h"
#include "train_cases.h"

namespace slime::parity {
namespace {

using namespace train;

json::value read_run(const char* file) {
  return read_json_file(std::string(SLIME_SOURCE_DIR "/tests/fixtures/trajectory/") + file);
}

std::vector<Sample> samples_of(const json::value& run) {
  std::vector<Sample> samples;
  for (const auto& entry : run.at("samples").as_array()) {
    const json::object& object = entry.as_object();
    Sample sample;
    sample.ordinal = static_cast<int64_t>(samples.size());
    for (const auto& id : object.at("tokens").as_array())
      sample.tokens.push_back(id.to_number<TokenId>());
    sample.prompt_length = static_cast<int64_t>(sample.tokens.size()) -
                           object.at("response_length").to_number<int64_t>();
    for (const auto& m : object.at("loss_mask").as_array())
      sample.loss_mask.push_back(m.to_number<uint8_t>());
    if (object.contains("group_index"))
      sample.group = object.at("group_index").to_number<int64_t>();
    if (object.contains("reward")) sample.reward = object.at("reward").to_number<double>();
    if (object.contains("rollout_log_probs")) {
      for (const auto& x : object.at("rollout_log_probs").as_array()) {
        sample.log_probs.push_back(x.to_number<float>());
      }
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

TrainConfig base_config(const json::value& run) {
  const auto number = [&](const char* key) { return run.at("adam").at(key).to_number<double>(); };
  TrainConfig config;
  config.adam = {number("beta1"), number("beta2"), number("eps")};
  config.lr.weight_decay = number("weight_decay");
  config.clip_grad = run.at("clip_grad").to_number<double>();
  config.batching.use_dynamic_batch_size = true;
  config.batching.max_tokens_per_gpu = 96;
  return config;
}

/// Tolerances of the README for float32.
void expect_step(const StepReport& got, const json::object& expected) {
  EXPECT_TRUE(got.skipped.empty()) << got.skipped;
  for (const auto& [key, value] : expected) {
    const std::string name(key);
    const double want = value.to_number<double>();
    if (name == "step") continue;
    if (name == "lr") {
      EXPECT_DOUBLE_EQ(got.metrics.at("train/lr-pg_0"), want);
    } else {
      const double bound = name == "loss"          ? 2e-5
                           : name == "grad_norm"   ? 1e-4 * want
                           : name == "pg_clipfrac" ? 1e-6
                                                   : 1e-4;
      EXPECT_NEAR(got.metrics.at("train/" + name), want, bound) << name;
    }
  }
}

void expect_weights(const model::Weights& weights, const json::object& expected) {
  ASSERT_EQ(weights.tensors().size(), expected.size());
  for (const model::NamedWeight& weight : weights.tensors()) {
    SCOPED_TRACE(weight.name);
    const Tensor x = model::Weights::view(weights.flat(), weight).to(at::kDouble);
    const auto& want = expected.at(weight.name);
    const double norm = want.at("norm").to_number<double>();
    EXPECT_NEAR(x.norm().item<double>(), norm, 1e-6 * norm);
    EXPECT_NEAR(x.sum().item<double>(), want.at("sum").to_number<double>(), 1e-3);
  }
}

using comm::ParallelLayout;

/// Calls body(trainer) on every rank, each with its part of the network.
void with_trainers(const ParallelLayout& layout, TrainConfig config, bool needs_reference,
                   const std::function<void(Trainer&)>& body) {
  config.batching.dp = layout.dp;
  const auto load = [](const comm::Mesh& mesh) {
    return model::load_network(kModels + "qwen3", model::Precision::of("float32"), mesh);
  };
  on_mesh(layout, [&](const comm::Mesh& mesh) {
    const auto network = load(mesh);
    const SystemClock clock;
    OtherNetworks others;
    if (needs_reference) others.reference = load(mesh);
    Trainer trainer(*network, config, clock, std::move(others), mesh);
    body(trainer);
  });
}

TrainReport train_share(Trainer& trainer, const TrainBatch& batch) {
  return trainer.train(trainer.divide(batch).at(trainer.mesh().at().dp));
}

/// All ranks call it; rank 0 looks.
void expect_all_weights(Trainer& trainer, const json::object& expected) {
  const bool looks = trainer.mesh().rank() == 0;
  const auto whole =
      looks ? model::make_blank_network(trainer.network().config(), model::Precision::of("float32"))
            : nullptr;
  gather_weights(trainer, whole.get());
  if (looks) expect_weights(whole->weights(), expected);
}

void run_supervised(const char* name, algo::Reduction reduction,
                    const ParallelLayout& layout = {}) {
  const json::value file = read_run("sft_qwen3.json");
  const std::vector<Sample> samples = samples_of(file);
  TrainConfig config = base_config(file);
  config.objective = Objective::kSupervised;
  config.reduction = reduction;
  config.batching.global_batch_size = 4;
  config.lr.lr = 1e-3;
  config.lr.min_lr = 1e-4;
  config.lr.style = DecayStyle::kCosine;
  config.lr = with_iterations(config.lr, {.train_iters = 30, .lr_warmup_iters = 5}, 4);

  const auto& expected = file.at(name).as_object();
  const auto& steps = expected.at("steps").as_array();
  with_trainers(layout, config, false, [&](Trainer& trainer) {
    for (std::size_t step = 0; step < steps.size(); ++step) {
      SCOPED_TRACE(step);
      std::vector<Sample> rows;
      for (std::size_t j = 0; j < 4; ++j) rows.push_back(samples[(step * 4 + j) % samples.size()]);
      const TrainBatch batch = make_supervised_batch(rows);
      const TrainReport report = train_share(trainer, batch);
      ASSERT_EQ(report.steps.size(), 1u);
      expect_step(report.steps[0], steps[step].as_object());
      const auto* after =
          expected.at("weights_after").as_object().if_contains(std::to_string(step + 1));
      if (after != nullptr) expect_all_weights(trainer, after->as_object());
    }
  });
}

TEST(Trajectory, SupervisedPerToken) { run_supervised("per_token", algo::Reduction::kPerToken); }
TEST(Trajectory, SupervisedPerSample) {
  run_supervised("per_sample", algo::Reduction::kPerRollout);
}
TEST(Trajectory, SupervisedPerTokenOnTwoRanks) {
  run_supervised("per_token", algo::Reduction::kPerToken, {.dp = 2});
}
TEST(Trajectory, SupervisedPerTokenOnEachKindOfRanks) {
  for (const ParallelLayout& layout : {ParallelLayout{.tp = 2, .sequence_parallel = true},
                                       ParallelLayout{.cp = 2}, ParallelLayout{.pp = 3}})
    run_supervised("per_token", algo::Reduction::kPerToken, layout);
}

void run_grpo(const char* name, algo::Reduction reduction, std::optional<algo::KlLoss> kl_loss,
              const ParallelLayout& layout = {}) {
  const json::value file = read_run("grpo_qwen3.json");
  std::vector<Group> groups(3);
  for (Sample& sample : samples_of(file)) groups[sample.group].samples.push_back(std::move(sample));
  TrainConfig config = base_config(file);
  config.reduction = reduction;
  config.batching.global_batch_size = 12;
  config.policy.objective = algo::TokenClip{0.2, 0.28, std::nullopt};
  config.policy.use_rollout_logprobs = true;
  config.policy.kl_loss = kl_loss;
  config.lr.lr = 2e-4;
  config.lr.style = DecayStyle::kConstant;

  const TrainBatch batch = make_train_batch(groups, {});
  const auto& expected = file.at(name).as_object();
  with_trainers(layout, config, kl_loss.has_value(), [&](Trainer& trainer) {
    for (const auto& step : expected.at("steps").as_array()) {
      const TrainReport report = train_share(trainer, batch);
      ASSERT_EQ(report.steps.size(), 1u);
      expect_step(report.steps[0], step.as_object());
    }
    expect_all_weights(trainer, expected.at("weights_after").at("3").as_object());
  });
}

TEST(Trajectory, Grpo) { run_grpo("no_kl", algo::Reduction::kPerRollout, std::nullopt); }
TEST(Trajectory, GrpoWithKlLoss) {
  run_grpo("kl_loss_k3_coef_0.01", algo::Reduction::kPerRollout,
           algo::KlLoss{algo::KlType::kK3, 0.01, false});
}
TEST(Trajectory, GrpoWithKlLossOnTwoRanks) {
  run_grpo("kl_loss_k3_coef_0.01", algo::Reduction::kPerRollout,
           algo::KlLoss{algo::KlType::kK3, 0.01, false}, {.dp = 2});
}
TEST(Trajectory, GrpoWithKlLossOnEachKindOfRanks) {
  for (const ParallelLayout& layout :
       {ParallelLayout{.dp = 2, .tp = 2}, ParallelLayout{.tp = 2, .sequence_parallel = true},
        ParallelLayout{.cp = 2, .contiguous_context = true}, ParallelLayout{.pp = 3},
        ParallelLayout{.tp = 2, .cp = 2}})
    run_grpo("kl_loss_k3_coef_0.01", algo::Reduction::kPerRollout,
             algo::KlLoss{algo::KlType::kK3, 0.01, false}, layout);
}
TEST(Trajectory, GrpoPerToken) {
  run_grpo("no_kl_per_token", algo::Reduction::kPerToken, std::nullopt);
}

}  // namespace
}  // namespace slime::parity
