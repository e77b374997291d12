// Golden cases that go from logits to a reduced loss and its gradient.

#include <ATen/ATen.h>

#include "algo/loss.h"
#include "algo/packed.h"
#include "context_parallel.h"
#include "golden.h"
#include "golden_flags.h"

namespace slime::golden {
namespace {

using namespace algo;

/// Rows of the packed batch that predict response tokens, and those tokens.
struct Rows {
  Tensor row_T, target_T, starts, total_R;
};

Rows rows_of(const json::object& inputs, at::ScalarType dtype) {
  const auto& tokens = inputs.at("tokens").as_array();
  const auto response_lengths = integers(inputs.at("response_lengths"));
  std::vector<int64_t> rows, targets;
  int64_t begin = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto ids = integers(tokens[i]);
    const auto length = static_cast<int64_t>(ids.size());
    for (int64_t p = length - response_lengths[i]; p < length; ++p) {
      rows.push_back(begin + p - 1);
      targets.push_back(ids[p]);
    }
    begin += length;
  }
  return {at::tensor(rows).to(device()), at::tensor(targets).to(device()),
          make_starts(response_lengths), column(inputs, "rollout_mask_sums", dtype)};
}

/// Log-probs and entropies the slow way (spec 4.1, 4.4).
std::pair<Tensor, Tensor> dense_log_probs(const Tensor& logits_UV, const Rows& rows,
                                          double temperature, const json::object& inputs) {
  const Tensor u_TV = logits_UV.index_select(0, rows.row_T) / temperature;
  const Tensor all_TV = u_TV.log_softmax(-1);
  const Tensor entropy_T = -(all_TV.exp() * all_TV).sum(-1);
  Tensor dropped_TV = at::zeros_like(u_TV, at::kBool);
  if (has(inputs, "top_p_token_ids")) {
    int64_t t = 0;
    const auto& ids = inputs.at("top_p_token_ids").as_array();
    const auto& offsets = inputs.at("top_p_token_offsets").as_array();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto kept = integers(ids[i]), offset = integers(offsets[i]);
      for (std::size_t r = 0; r + 1 < offset.size(); ++r, ++t) {
        dropped_TV[t].fill_(true);
        for (int64_t k = offset[r]; k < offset[r + 1]; ++k) dropped_TV[t][kept[k]] = false;
        dropped_TV[t][rows.target_T[t].item<int64_t>()] = false;
      }
    }
  }
  const Tensor kept_TV =
      u_TV.masked_fill(dropped_TV, -std::numeric_limits<double>::infinity()).log_softmax(-1);
  return {kept_TV.gather(1, rows.target_T.unsqueeze(1)).squeeze(1), entropy_T};
}

/// What the original's engine multiplies a micro-batch's sum by (spec 10.3); ours divides once per
/// step instead.
double megatron_scale(const json::object& inputs, bool per_token) {
  return per_token ? 1.0
                   : number(inputs, "num_microbatches") * number(inputs, "dp_size") /
                         number(inputs, "global_batch_size");
}

void expect_loss(const Loss& loss, const Tensor& leaf, const json::object& c,
                 const char* gradient_key, bool per_token, double denominator) {
  const auto& expected = part(c, "expected");
  const auto dtype = leaf.scalar_type();
  const double scale = megatron_scale(part(c, "inputs"), per_token);
  expect_close(loss.sum.item<double>() * scale, expected.at("scaled_loss"), "scaled_loss", dtype);
  if (has(expected, "normalizer")) {
    EXPECT_EQ(per_token ? denominator : 1, number(expected, "normalizer"));
  }
  for (const auto& [name, value] : part(expected, "metrics")) {
    const auto found = loss.metrics.find(name);
    ASSERT_NE(found, loss.metrics.end()) << name.data();
    expect_close(found->second, value, name.data(), dtype);
  }
  // Beside the difference of log-probs stands its divergence, which the original does not report.
  const bool is_compared = loss.metrics.contains("train_rollout_logprob_abs_diff");
  const auto divergence = loss.metrics.find("train_rollout_k3");
  EXPECT_EQ(divergence != loss.metrics.end(), is_compared);
  if (divergence != loss.metrics.end()) {
    EXPECT_GE(divergence->second, 0);
  }
  EXPECT_EQ(loss.metrics.size(), part(expected, "metrics").size() + (is_compared ? 1 : 0));
  loss.sum.backward();
  expect_close(leaf.grad() * scale, expected.at(gradient_key), gradient_key);
}

Tensor matrix(const json::object& inputs, const char* key, at::ScalarType dtype) {
  return column(inputs, key, dtype)
      .reshape({static_cast<int64_t>(inputs.at(key).as_array().size()), -1});
}

GOLDEN_TEST_IN_BOTH_PRECISIONS(PolicyLossEndToEnd, "policy_loss_end_to_end.json") {
  const train::TrainConfig how = setup_of(words_of(part(c, "params"))).train;
  const auto& inputs = part(c, "inputs");
  EXPECT_EQ(how.replays_top_p, has(inputs, "top_p_token_ids"));
  const Rows rows = rows_of(inputs, dtype);
  const Tensor logits_UV = matrix(inputs, "logits", dtype).requires_grad_(true);
  PolicyColumns in;
  std::tie(in.logprob_T, in.entropy_T) = dense_log_probs(logits_UV, rows, how.temperature, inputs);
  in.old_T = column(inputs, "log_probs", dtype);
  in.ref_T = column(inputs, "ref_log_probs", dtype);
  in.engine_T = column(inputs, "rollout_log_probs", dtype);
  in.advantage_T = column(inputs, "advantages", dtype);
  in.trained_T = mask(inputs, "loss_masks");
  in.starts = rows.starts;
  in.weight_T = token_weights(how.reduction, in.trained_T, rows.total_R, in.starts);
  expect_close(in.logprob_T, part(c, "expected").at("log_probs"), "log_probs");
  expect_close(in.entropy_T, part(c, "expected").at("entropy"), "entropy");
  expect_loss(policy_loss(how.policy, in), logits_UV, c, "dscaled_loss_dlogits",
              how.reduction == Reduction::kPerToken, token_denominator(in.trained_T, in.starts));
}

GOLDEN_TEST_IN_BOTH_PRECISIONS(SupervisedAndValueLossEndToEnd,
                               "sft_and_value_loss_end_to_end.json") {
  const auto& params = part(c, "params");
  const auto& inputs = part(c, "inputs");
  const bool is_critic = has(params, "value_clip");
  const Words role = is_critic ? Words{"--advantage-estimator", "ppo"}
                               : Words{"--loss-type", "sft_loss", "--rollout-function-path",
                                       "slime.rollout.sft_rollout.generate_rollout"};
  const train::TrainConfig how = setup_of(words_of(params, {"loss"}), role).train;
  const bool per_token = how.reduction == Reduction::kPerToken;
  const Rows rows = rows_of(inputs, dtype);
  const Tensor trained_T = mask(inputs, "loss_masks");
  const Tensor weight_T = token_weights(how.reduction, trained_T, rows.total_R, rows.starts);
  const double denominator = token_denominator(trained_T, rows.starts);
  if (is_critic) {
    const Tensor value_U = column(inputs, "value_head", dtype).requires_grad_(true);
    const Loss loss =
        value_loss(how.critic.value().value_clip, value_U.index_select(0, rows.row_T),
                   column(inputs, "old_values", dtype), column(inputs, "returns", dtype), weight_T);
    expect_loss(loss, value_U, c, "dscaled_loss_dvalue_head", per_token, denominator);
  } else {
    EXPECT_EQ(how.objective, train::Objective::kSupervised);
    const Tensor logits_UV = matrix(inputs, "logits", dtype).requires_grad_(true);
    const Tensor logprob_T = dense_log_probs(logits_UV, rows, how.temperature, inputs).first;
    expect_loss(supervised_loss(logprob_T, weight_T), logits_UV, c, "dscaled_loss_dlogits",
                per_token, denominator);
  }
}

/// One rank's part of a micro-batch: the response tokens it owns, end to end.
struct RankColumns {
  std::vector<int64_t> lengths;
  std::vector<double> x, mask, totals;
};

RankColumns columns_of(const json::array& samples, const std::vector<double>& totals,
                       const std::vector<int64_t>& members, int64_t cp, int64_t rank) {
  RankColumns columns;
  for (const int64_t i : members) {
    const auto& sample = samples[i].as_object();
    const auto x = doubles(sample.at("x")), m = doubles(sample.at("mask"));
    const auto owned =
        owned_response_tokens(integer(sample, "total"), integer(sample, "resp"), cp, rank);
    columns.lengths.push_back(static_cast<int64_t>(owned.size()));
    columns.totals.push_back(totals[i]);
    for (const int64_t t : owned) {
      columns.x.push_back(x[t]);
      columns.mask.push_back(m[t]);
    }
  }
  return columns;
}

GOLDEN_TEST(LossReduction, "loss_reduction.json") {
  const auto& samples = part(c, "inputs").at("samples").as_array();
  const auto totals = doubles(part(c, "expected").at("rollout_mask_sums"));
  const int64_t cp = integer(part(c, "params"), "cp_size");
  for (const auto how : {Reduction::kPerRollout, Reduction::kPerToken}) {
    const bool per_token = how == Reduction::kPerToken;
    const auto& expected = part(part(c, "expected"), per_token ? "per_token" : "per_rollout_mean");
    double sum = 0, tokens = 0;
    for (const auto& value : expected.at("per_micro_batch").as_array()) {
      const auto& entry = value.as_object();
      const auto& micro_batches =
          part(c, "inputs").at("rank_micro_batches").at(integer(entry, "dp_rank"));
      const auto members = integers(micro_batches.at(integer(entry, "micro_batch")));
      const int64_t rank = integer(entry, "cp_rank");
      const RankColumns own = columns_of(samples, totals, members, cp, rank);
      const Tensor starts = make_starts(own.lengths);
      const Tensor weight_T = token_weights(how, at::tensor(own.mask, at::kDouble) != 0,
                                            at::tensor(own.totals, at::kDouble), starts);
      const double got = (weight_T * at::tensor(own.x, at::kDouble)).sum().item<double>();
      expect_close(got, entry.at("value"), "micro-batch", at::kDouble);
      sum += got;
      // The denominator counts whole responses, on one of the ranks that share them.
      const RankColumns whole = columns_of(samples, totals, members, 1, 0);
      const double counted =
          token_denominator(at::tensor(whole.mask, at::kDouble) != 0, make_starts(whole.lengths));
      EXPECT_EQ(counted, number(entry, "num_tokens"));
      if (rank == 0) tokens += counted;
    }
    const double mean = sum / (per_token ? tokens : number(part(c, "params"), "global_batch_size"));
    expect_close(mean, expected.at("effective_loss"), "effective_loss", at::kDouble);
  }
}

}  // namespace
}  // namespace slime::golden
