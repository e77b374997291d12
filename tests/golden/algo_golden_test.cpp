// Every case of the golden files about advantages and losses, in float64 and float32.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <numeric>

#include "algo/advantage.h"
#include "algo/kl.h"
#include "algo/loss.h"
#include "algo/mismatch.h"
#include "algo/packed.h"
#include "algo/policy_objective.h"
#include "algo/reward_normalization.h"
#include "golden.h"
#include "golden_flags.h"

namespace slime::golden {
namespace {

using namespace algo;

Tensor leaf(Tensor x) { return x.requires_grad_(true); }

/// d x / d of, as a plain tensor; zeros where x does not depend on it.
Tensor gradient(const Tensor& x, const Tensor& of) {
  at::AutoGradMode grad_mode(true);
  of.mutable_grad() = Tensor();
  x.sum().backward();
  return of.grad().defined() ? of.grad() : at::zeros_like(of);
}

/// Words without which `slime train` refuses those of a case.
Words needed_by(const json::object& params) {
  Words words;
  if (has(params, "advantage_estimator") &&
      word(params, "advantage_estimator").starts_with("reinforce_plus_plus"))
    words.push_back("--normalize-advantages");
  if (!flag(params, "use_opd")) return words;
  if (word(params, "opd_type") == "megatron") {
    words.insert(words.end(), {"--opd-teacher-load", SLIME_SOURCE_DIR});
  } else {
    words.insert(words.end(), {"--rm-url", "http://teacher/generate"});
  }
  return words;
}

GOLDEN_TEST(RewardNormalization, "reward_normalization.json") {
  const auto& params = part(c, "params");
  const auto rewards = doubles(part(c, "inputs").at("rewards"));
  const auto how = setup_of(words_of(params), needed_by(params)).batch.rewards;
  // The original sees one group when the count is not n * B (spec 21.3); ours goes by ids.
  const int64_t n = integer(params, "n_samples_per_prompt");
  const bool is_regular =
      static_cast<int64_t>(rewards.size()) == n * integer(params, "rollout_batch_size");
  std::vector<int64_t> groups(rewards.size(), 0);
  for (std::size_t i = 0; is_regular && i < groups.size(); ++i)
    groups[i] = static_cast<int64_t>(i) / n;
  std::vector<int64_t> executions(rewards.size());
  std::iota(executions.begin(), executions.end(), int64_t{0});
  expect_close(at::tensor(normalize_rewards(rewards, groups, executions, how), at::kDouble),
               part(c, "expected").at("rewards"), "rewards");
}

GOLDEN_TEST_IN_BOTH_PRECISIONS(KlEstimators, "kl_estimators.json") {
  const auto& inputs = part(c, "inputs");
  const auto& expected = part(c, "expected");
  const Tensor logprob = leaf(column(inputs, "log_probs", dtype));
  Tensor importance = column(inputs, "importance_ratio", dtype);
  const Setup setup = setup_of(words_of(part(c, "params")), {"--use-kl-loss"});
  const KlLoss& how = setup.train.policy.kl_loss.value();
  EXPECT_EQ(how.type, setup.train.kl_type);
  if (how.unbiased) importance = (logprob - column(inputs, "old_log_probs", dtype)).exp();
  const Tensor kl =
      kl_estimate(how.type, logprob, column(inputs, "ref_log_probs", dtype), importance);
  expect_close(kl, expected.at("kl"), "kl");
  if (has(expected, "dkl_dlogprob"))
    expect_close(gradient(kl, logprob), expected.at("dkl_dlogprob"), "gradient");
}

GOLDEN_TEST_IN_BOTH_PRECISIONS(DiscountedReturnsAndGae, "gae.json") {
  const auto& inputs = part(c, "inputs");
  const auto& params = part(c, "params");
  const auto& expected = part(c, "expected");
  const Tensor reward_T = column(inputs, "rewards", dtype);
  ScoredTokens in;
  // The estimators take token rewards as penalties: -1 * kl_T.
  in.kl_T = -reward_T;
  in.trained_T = at::ones_like(reward_T, at::kBool);
  const bool is_gae = word(params, "kind") != "discounted_returns";
  const bool is_ragged = inputs.at("rewards").as_array().front().is_array();
  in.starts = make_starts(is_ragged ? lengths(inputs.at("rewards"))
                                    : std::vector<int64_t>{reward_T.size(0)});
  in.score_R = at::zeros({in.starts.size(0) - 1}, reward_T.options());
  in.value_T = column(inputs, "values", dtype);
  Words words = words_of(params, {"kind", "discount"});
  if (is_gae) {
    words.insert(words.end(), {"--advantage-estimator", "ppo"});
  } else {
    words.insert(words.end(),
                 {"--advantage-estimator", "reinforce_plus_plus", "--normalize-advantages",
                  "--gamma", json::serialize(params.at("discount"))});
  }
  const Setup setup = setup_of(words, {"--kl-coef", "1"});
  const Advantages got = make_advantage_fn(setup.train.advantage)(in);
  expect_close(got.return_T, expected.at("returns"), "returns");
  if (has(expected, "advantages"))
    expect_close(got.advantage_T, expected.at("advantages"), "advantages");
}

GOLDEN_TEST_IN_BOTH_PRECISIONS(Advantages, "advantages.json") {
  const auto& inputs = part(c, "inputs");
  const auto& params = part(c, "params");
  const auto& expected = part(c, "expected");
  ScoredTokens in;
  in.starts = make_starts(integers(inputs.at("response_lengths")));
  in.score_R = column(inputs, "rewards", dtype);
  in.trained_T = mask(inputs, "loss_masks");
  in.value_T = column(inputs, "values", dtype);
  const Tensor logprob_T = column(inputs, "log_probs", dtype);
  const Tensor ref_T = column(inputs, "ref_log_probs", dtype);
  in.kl_T = at::zeros_like(in.trained_T, at::TensorOptions(dtype));
  const Setup setup = setup_of(words_of(params), needed_by(params));
  const train::TrainConfig& how = setup.train;
  if (setup.flags.kl_coef != 0 && logprob_T.defined() && ref_T.defined())
    in.kl_T = kl_estimate(how.kl_type, logprob_T, ref_T);
  expect_close(in.kl_T, expected.at("kl"), "kl");
  Advantages got = make_advantage_fn(how.advantage)(in);
  EXPECT_EQ(how.distillation_coef.has_value(), flag(params, "use_opd"));
  if (how.distillation_coef) {
    EXPECT_EQ(how.has_teacher_model, word(params, "opd_type") == "megatron");
    const Tensor teacher_T = column(inputs, "teacher_log_probs", dtype);
    got.advantage_T =
        distilled_advantage(got.advantage_T, logprob_T, teacher_T, *how.distillation_coef);
    expect_close(logprob_T - teacher_T, expected.at("opd_reverse_kl"), "opd_reverse_kl");
    // There advantages and returns are the same list (spec 6.6).
    if (word(params, "advantage_estimator") == "reinforce_plus_plus_baseline")
      got.return_T = got.advantage_T;
  }
  EXPECT_TRUE(how.normalize_advantages || !flag(params, "normalize_advantages"));
  if (flag(params, "normalize_advantages")) {
    got.advantage_T = whiten(got.advantage_T, moments_of(got.advantage_T, in.trained_T));
  }
  expect_close(got.advantage_T, expected.at("advantages"), "advantages");
  expect_close(got.return_T, expected.at("returns"), "returns");
}

GOLDEN_TEST_IN_BOTH_PRECISIONS(AdvantageWhitening, "advantage_whitening.json") {
  Moments moments;
  std::vector<Tensor> values;
  for (const auto& rank : part(c, "inputs").at("ranks").as_array()) {
    values.push_back(column(rank.as_object(), "values", dtype));
    moments += moments_of(values.back(), mask(rank.as_object(), "mask"));
  }
  Tensor whitened = whiten(at::cat(values), moments);
  // The variant that puts the mean back is nobody's default; the rest of its answer is ours.
  if (!flag(part(c, "params"), "shift_mean")) whitened = whitened + moments.sum / moments.count;
  const auto& expected = part(c, "expected");
  expect_close(moments.sum / moments.count, expected.at("mean"), "mean", dtype);
  expect_close(whitened, expected.at("whitened"), "whitened");
}

GOLDEN_TEST_IN_BOTH_PRECISIONS(PolicyLossTokens, "policy_loss_tokens.json") {
  const auto& params = part(c, "params");
  const auto& inputs = part(c, "inputs");
  const auto& expected = part(c, "expected");
  const PolicyObjective how = setup_of(words_of(params)).train.policy.objective;
  PolicyTokens in;
  in.logprob_T = leaf(column(inputs, "log_probs", dtype));
  in.old_T = column(inputs, "old_log_probs", dtype);
  in.advantage_T = column(inputs, "advantages", dtype);
  const PolicyTerms terms = policy_terms(how, in);
  expect_close((-terms.k_T).exp(), expected.at("ratio"), "ratio");
  expect_close(terms.loss_T, expected.at("pg_loss"), "pg_loss");
  expect_close(terms.clipped_T, expected.at("clipfrac"), "clipfrac");
  expect_close(gradient(terms.loss_T, in.logprob_T), expected.at("dloss_dlogprob"), "gradient");
}

PolicyTokens packed_tokens(const json::object& inputs, at::ScalarType dtype) {
  PolicyTokens in;
  in.logprob_T = leaf(column(inputs, "log_probs", dtype));
  in.old_T = column(inputs, "old_log_probs", dtype);
  in.advantage_T = column(inputs, "advantages", dtype);
  in.trained_T = mask(inputs, "loss_masks");
  in.starts = make_starts(lengths(inputs.at("log_probs")));
  return in;
}

GOLDEN_TEST_IN_BOTH_PRECISIONS(GspoLoss, "gspo_loss.json") {
  const auto& params = part(c, "params");
  const auto& expected = part(c, "expected");
  const PolicyObjective how =
      setup_of(words_of(params), {"--advantage-estimator", "gspo"}).train.policy.objective;
  const PolicyTokens in = packed_tokens(part(c, "inputs"), dtype);
  const PolicyTerms terms = policy_terms(how, in);
  expect_close(terms.k_T, expected.at("ppo_kl"), "ppo_kl");
  expect_close(terms.loss_T, expected.at("pg_loss"), "pg_loss");
  expect_close(terms.clipped_T, expected.at("clipfrac"), "clipfrac");
  const Tensor objective = mean_per_response(terms.loss_T, in.trained_T, in.starts).sum();
  expect_close(objective, expected.at("sum_of_sample_mean_pg_loss"), "objective");
  expect_close(gradient(objective, in.logprob_T), expected.at("dobjective_dlogprob"), "gradient");
}

GOLDEN_TEST_IN_BOTH_PRECISIONS(CispoLoss, "cispo_loss.json") {
  const auto& params = part(c, "params");
  const auto& inputs = part(c, "inputs");
  const auto& expected = part(c, "expected");
  PolicyTokens in;
  in.logprob_T = leaf(column(inputs, "log_probs", dtype));
  in.old_T = column(inputs, "old_log_probs", dtype);
  in.advantage_T = column(inputs, "advantages", dtype);
  const PolicyObjective how =
      setup_of(words_of(params), {"--advantage-estimator", "cispo"}).train.policy.objective;
  const PolicyTerms terms = policy_terms(how, in);
  expect_close(terms.loss_T, expected.at("pg_loss"), "pg_loss");
  expect_close(terms.clipped_T, expected.at("clipfrac"), "clipfrac");
  expect_close(gradient(terms.loss_T, in.logprob_T), expected.at("dloss_dlogprob"), "gradient");
}

GOLDEN_TEST_IN_BOTH_PRECISIONS(OffPolicySequenceMasking, "opsm.json") {
  const PolicyTokens in = packed_tokens(part(c, "inputs"), dtype);
  const auto& expected = part(c, "expected");
  const Setup setup = setup_of(words_of(part(c, "params")), {"--use-opsm"});
  const MaskedSequences masked = mask_off_policy(setup.train.policy.off_policy_masking.value(), in);
  expect_close(mean_per_response(in.old_T - in.logprob_T, in.trained_T, in.starts),
               expected.at("sequence_kl"), "kl");
  expect_close(masked.keep_T, expected.at("opsm_mask"), "mask");
  expect_close(masked.drop_share, expected.at("opsm_clipfrac"), "opsm_clipfrac", dtype);
}

GOLDEN_TEST_IN_BOTH_PRECISIONS(MismatchCorrection, "tis.json") {
  const auto& params = part(c, "params");
  const auto& inputs = part(c, "inputs");
  const auto& expected = part(c, "expected");
  Words function;
  if (word(params, "function") == "icepop")
    function = {"--custom-tis-function-path", "slime.backends.megatron_utils.loss.icepop_function"};
  function.push_back("--use-tis");
  const Setup setup = setup_of(words_of(params, {"function"}), function);
  MismatchTokens in{column(inputs, "train_log_probs", dtype),
                    column(inputs, "rollout_log_probs", dtype), Tensor(), Tensor()};
  in.trained_T = at::ones_like(in.trainer_T, at::kBool);
  const MismatchEffect got = correct_mismatch(setup.train.policy.correction.value(), in);
  expect_close(got.weight_T, expected.at("weight"), "weight");
  expect_close(got.weight_T * column(inputs, "pg_loss", dtype), expected.at("pg_loss"), "pg_loss");
  for (const auto& [name, x_T] : got.metrics) expect_close(x_T, expected.at(name), name.c_str());
}

GOLDEN_TEST_IN_BOTH_PRECISIONS(ImportanceAndRejection, "mis_rollout_correction.json") {
  const auto& inputs = part(c, "inputs");
  const auto& expected = part(c, "expected");
  const auto& params = part(c, "params");
  Words words = {"--custom-tis-function-path",
                 "examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp"};
  if (!flag(params, "use_tis")) words.emplace_back("--get-mismatch-metrics");
  const PolicyLossConfig policy = setup_of(words_of(params), words).train.policy;
  EXPECT_EQ(policy.reports_mismatch, !flag(params, "use_tis"));
  const MismatchEffect got = correct_mismatch(
      policy.correction.value(),
      {column(inputs, "train_log_probs", dtype), column(inputs, "rollout_log_probs", dtype),
       mask(inputs, "loss_masks"), make_starts(lengths(inputs.at("loss_masks")))});
  EXPECT_EQ(got.weight_T.defined(), flag(params, "use_tis"));
  if (got.weight_T.defined()) expect_close(got.weight_T, expected.at("weights"), "weights");
  expect_close(got.kept_T.to(dtype), expected.at("modified_masks"), "modified_masks");
  const auto& metrics = part(expected, "metrics");
  EXPECT_EQ(got.metrics.size(), metrics.size());
  for (const auto& [name, x_T] : got.metrics) {
    ASSERT_TRUE(name.starts_with("mis_"));
    expect_close(x_T, metrics.at(name.substr(4)), name.c_str());
  }
}

GOLDEN_TEST_IN_BOTH_PRECISIONS(ValueLossTokens, "value_loss_tokens.json") {
  const auto& inputs = part(c, "inputs");
  const auto& expected = part(c, "expected");
  const Tensor value_T = leaf(column(inputs, "values", dtype));
  const Tensor old_T = column(inputs, "old_values", dtype),
               return_T = column(inputs, "returns", dtype);
  const Setup setup = setup_of(words_of(part(c, "params")), {"--advantage-estimator", "ppo"});
  const double clip = setup.train.critic.value().value_clip;
  // In float32 a change of exactly the bound falls on either side of it (docs/decisions/0050).
  const Tensor distance_T = ((value_T - old_T).abs() - clip).abs();
  const Tensor is_clear_T = distance_T.detach() > (dtype == at::kFloat ? 1e-6 : 0.0);
  for (int64_t t = 0; t < value_T.size(0); ++t) {
    if (dtype == at::kFloat && !is_clear_T[t].item<bool>()) continue;
    Tensor one_hot = at::zeros_like(old_T);
    one_hot[t] = 1;
    const Loss loss = value_loss(clip, value_T, old_T, return_T, one_hot);
    expect_close(loss.metrics.at("value_loss"), expected.at("value_loss").at(t), "value_loss",
                 dtype);
    expect_close(loss.metrics.at("value_clipfrac"), expected.at("value_clipfrac").at(t), "clipfrac",
                 dtype);
    const Tensor slope_T = gradient(loss.sum, value_T);
    expect_close(slope_T[t].item<double>(), expected.at("dloss_dvalue").at(t), "gradient", dtype);
  }
}

}  // namespace
}  // namespace slime::golden
