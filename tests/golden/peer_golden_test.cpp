// Golden numbers of the algorithms beyond the original's, from tests/tools/peer_algorithms.py.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <numeric>

#include "algo/loss.h"
#include "algo/overlong_penalty.h"
#include "algo/packed.h"
#include "algo/preference_loss.h"
#include "algo/reward_normalization.h"
#include "golden.h"
#include "golden_flags.h"

namespace slime::golden {
namespace {

using namespace algo;

/// A group id for each entry of the inner lists.
std::vector<int64_t> group_ids(const json::value& groups) {
  std::vector<int64_t> ids;
  for (const int64_t size : lengths(groups)) {
    const int64_t id = ids.empty() ? 0 : ids.back() + 1;
    ids.insert(ids.end(), static_cast<std::size_t>(size), id);
  }
  return ids;
}

/// Each sample is an execution of its own.
std::vector<int64_t> own_executions(std::size_t num_samples) {
  std::vector<int64_t> ids(num_samples);
  std::iota(ids.begin(), ids.end(), int64_t{0});
  return ids;
}

GOLDEN_TEST(Rloo, "peer_rloo.json") {
  const auto& groups = part(c, "inputs").at("groups");
  const auto how = setup_of(words_of(part(c, "params"))).batch.rewards;
  const std::vector<double> rewards = doubles(groups);
  const auto got =
      normalize_rewards(rewards, group_ids(groups), own_executions(rewards.size()), how);
  expect_close(at::tensor(got, at::kDouble), part(c, "expected").at("advantages"), "advantages");
}

GOLDEN_TEST(OverlongPenalty, "peer_overlong.json") {
  const auto& params = part(c, "params");
  const auto text = [&](const char* key) { return json::serialize(params.at(key)); };
  const OverlongPenalty how =
      setup_of({"--rollout-max-response-len", text("max_length"), "--overlong-buffer-len",
                text("buffer"), "--overlong-penalty-factor", text("factor")})
          .batch.overlong.value();
  std::vector<double> got;
  for (const int64_t length : integers(part(c, "inputs").at("lengths")))
    got.push_back(overlong_penalty(how, length));
  expect_close(at::tensor(got, at::kDouble), part(c, "expected").at("penalties"), "penalties");
}

GOLDEN_TEST_IN_BOTH_PRECISIONS(DrGrpo, "peer_dr_grpo.json") {
  const auto& params = part(c, "params");
  const auto& inputs = part(c, "inputs");
  const auto& expected = part(c, "expected");
  const at::AutoGradMode grad_mode(true);
  const std::string divisor = json::serialize(params.at("divisor"));
  const Words words = words_of(params, {"divisor"});
  const Setup setup =
      setup_of(words, {"--advantage-estimator", "dr_grpo", "--rollout-max-response-len", divisor});
  // Its parts by themselves, for another estimator.
  const Setup parts =
      setup_of(words, {"--disable-grpo-std-normalization", "--policy-loss-divisor", divisor});
  EXPECT_EQ(parts.batch.rewards, setup.batch.rewards);
  EXPECT_EQ(parts.train.policy.policy_divisor, setup.train.policy.policy_divisor);
  const auto rewards = doubles(inputs.at("rewards"));
  const auto advantages = normalize_rewards(rewards, std::vector<int64_t>(rewards.size(), 0),
                                            own_executions(rewards.size()), setup.batch.rewards);
  expect_close(at::tensor(advantages, at::kDouble), expected.at("advantages"), "advantages");

  PolicyColumns in;
  in.starts = make_starts(lengths(inputs.at("log_probs")));
  in.logprob_T = column(inputs, "log_probs", dtype).requires_grad_(true);
  in.old_T = column(inputs, "old_log_probs", dtype);
  in.entropy_T = at::zeros_like(in.old_T);
  in.trained_T = mask(inputs, "loss_masks");
  in.advantage_T =
      expand_to_tokens(at::tensor(advantages, at::kDouble).to(device(), dtype), in.starts);
  in.weight_T = token_weights(setup.train.reduction, in.trained_T,
                              sum_per_response(in.trained_T.to(dtype), in.starts), in.starts);
  const Loss loss = policy_loss(setup.train.policy, in);
  expect_close(loss.metrics.at("pg_loss"), expected.at("pg_loss"), "pg_loss", dtype);
  loss.sum.backward();
  expect_close(in.logprob_T.grad(), expected.at("dloss_dlogprob"), "gradient");
}

GOLDEN_TEST_IN_BOTH_PRECISIONS(Dpo, "peer_dpo.json") {
  const auto& params = part(c, "params");
  const auto& inputs = part(c, "inputs");
  const auto& expected = part(c, "expected");
  const at::AutoGradMode grad_mode(true);
  const PreferenceColumns in{column(inputs, "log_probs", dtype).requires_grad_(true),
                             column(inputs, "ref_log_probs", dtype), mask(inputs, "loss_masks"),
                             make_starts(lengths(inputs.at("log_probs")))};
  const Setup setup =
      setup_of({"--loss-type", "dpo_loss", "--dpo-beta", json::serialize(params.at("beta")),
                "--dpo-label-smoothing", json::serialize(params.at("label_smoothing"))});
  EXPECT_EQ(setup.train.objective, train::Objective::kPreference);
  const Loss loss = preference_loss(setup.train.preference, in);
  expect_close(loss.sum, expected.at("loss"), "loss");
  for (const auto& [name, value] : part(expected, "metrics")) {
    expect_close(at::tensor(loss.metrics.at(name), at::kDouble).to(dtype), value, name.data());
  }
  EXPECT_EQ(loss.metrics.size(), part(expected, "metrics").size() + 1);
  loss.sum.backward();
  expect_close(in.logprob_T.grad(), expected.at("dloss_dlogprob"), "gradient");
}

}  // namespace
}  // namespace slime::golden
