/// Weights that change tensor by tensor on an engine of several ranks.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "core/version_runs.h"
#include "engine_rank_threads.h"
#include "model/tensor_update.h"

namespace slime {
namespace {

using engine::FromDirectory;
using engine::FromTensors;
using engine::GenerateRequest;
using engine::GenerateUpdate;
using engine::RunningRequests;
using engine::WeightCheck;
using testing::ParallelEngine;
using testing::sampled_request;
using testing::slices_of;
using testing::some_tokens;
using testing::TestEngine;

class TensorsOfRanks : public ::testing::TestWithParam<const char*> {};

/// All of a model's tensors, in two buckets.
std::array<model::TensorUpdate, 2> buckets_of(const model::Weights& weights) {
  std::array<model::TensorUpdate, 2> buckets;
  std::size_t next = 0;
  const auto add = [&](const std::string& name, const Tensor& value) {
    buckets[next++ % 2].tensors.emplace_back(name, value.clone());
  };
  for (const model::NamedWeight& weight : weights.tensors())
    add(weight.name, model::Weights::view(weights.flat(), weight));
  for (const model::NamedConstant& constant : weights.constants())
    add(constant.name, constant.value);
  return buckets;
}

TEST_P(TensorsOfRanks, AreTheSlicesOfAFreshLoadAndRanksSwitchInOneStep) {
  const at::NoGradGuard no_grad;
  TestEngine whole(GetParam());
  const auto buckets = buckets_of(whole.network().weights());
  ParallelEngine two(slices_of(GetParam()), 2);
  const int64_t vocabulary = std::min<int64_t>(300, two.network().config().vocab_size);
  GenerateRequest probe = sampled_request(some_tokens(40, 3, vocabulary), 20, 4);
  probe.return_logprob = true;
  probe.rid = "loaded";
  const GenerateUpdate loaded = two.generate(probe);
  ASSERT_TRUE(two.engine().check_weights(WeightCheck::kReset)) << "noise takes their place";
  for (int version = 1; version <= 2; ++version) {
    GenerateRequest running = sampled_request(some_tokens(12, 3, vocabulary), 60, 7);
    running.rid = "running-" + std::to_string(version);
    two.submit_and_pause(running, 5, engine::PauseMode::kInPlace);
    const Expected<void> brought =
        two.engine().update_weights({.version = version,
                                     .source = FromTensors{&buckets.at(version - 1)},
                                     .running = RunningRequests::kKeep});
    ASSERT_TRUE(brought) << brought.error().message;
    ASSERT_TRUE(two.engine().resume());
    // A rank that computed with other weights would draw other tokens, and the engine be lost.
    EXPECT_EQ(two.responses().wait(running.rid).versions,
              (std::vector<VersionRun>{{version - 1, 5}, {version, 55}}));
  }
  EXPECT_EQ(*two.engine().check_weights(WeightCheck::kChecksum),
            *whole.engine().check_weights(WeightCheck::kChecksum));
  probe.rid = "brought";
  const GenerateUpdate brought = two.generate(probe);
  EXPECT_EQ(brought.output_ids, loaded.output_ids);
  EXPECT_EQ(brought.output_log_probs, loaded.output_log_probs);
}

TEST_P(TensorsOfRanks, ThatCannotBeTakenChangeNoRank) {
  const at::NoGradGuard no_grad;
  TestEngine whole(GetParam());
  auto [first, second] = buckets_of(whole.network().weights());
  ParallelEngine two(slices_of(GetParam()), 2);
  const auto before = *two.engine().check_weights(WeightCheck::kChecksum);
  for (auto& [name, value] : first.tensors) value = value * 2;
  first.tensors.emplace_back("model.norm.wait", at::ones({1}));
  EXPECT_FALSE(two.engine().update_weights({.version = 1, .source = FromTensors{&first}}));
  EXPECT_EQ(*two.engine().check_weights(WeightCheck::kChecksum), before);
  // Behind a directory that cannot be read a bucket begins with what runs, on every rank.
  ASSERT_TRUE(two.engine().update_weights({.version = 1, .source = FromTensors{&second}}));
  EXPECT_FALSE(two.engine().update_weights({.version = 2, .source = FromDirectory{"nowhere"}}));
  ASSERT_TRUE(two.engine().update_weights({.version = 2, .source = FromTensors{&second}}));
  EXPECT_EQ(*two.engine().check_weights(WeightCheck::kChecksum), before);
}

INSTANTIATE_TEST_SUITE_P(Models, TensorsOfRanks,
                         ::testing::ValuesIn(golden_models::kinds(golden_models::divides_by_two)),
                         golden_models::name_of);

}  // namespace
}  // namespace slime
