// Golden cases of log-probs and entropies, through the kernel that training uses.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "golden.h"
#include "kernels/linear_logprob.h"

namespace slime::golden {
namespace {

Tensor scored_rows(const json::object& inputs, const char* key, at::ScalarType dtype) {
  return column(inputs, key, dtype)
      .reshape({static_cast<int64_t>(inputs.at(key).as_array().size()), -1});
}

/// keep_mask [R][V] as the ids that each row kept.
kernels::KeptTokens kept_tokens(const json::object& inputs) {
  std::vector<int64_t> ids, offsets{0};
  for (const auto& row : inputs.at("keep_mask").as_array()) {
    const auto bits = integers(row);
    for (std::size_t v = 0; v < bits.size(); ++v) {
      if (bits[v] != 0) ids.push_back(static_cast<int64_t>(v));
    }
    offsets.push_back(static_cast<int64_t>(ids.size()));
  }
  return {at::tensor(ids, at::kLong).to(device()), at::tensor(offsets, at::kLong)};
}

// With the identity as output layer hidden states are logits.
GOLDEN_TEST_IN_BOTH_PRECISIONS(LogProbEntropy, "logprob_entropy.json") {
  if (device().is_cuda() && dtype == at::kDouble) GTEST_SKIP() << "a GPU's kernels have no float64";
  const auto& inputs = part(c, "inputs");
  const auto& expected = part(c, "expected");
  const at::AutoGradMode grad_mode(true);
  const Tensor logits_RV = scored_rows(inputs, "logits", dtype).requires_grad_(true);
  const Tensor head_VV = at::eye(logits_RV.size(1), logits_RV.options().requires_grad(false));
  kernels::LinearLogProbOptions options;
  options.temperature = number(part(c, "params"), "temperature");
  options.entropy_gradient = true;
  if (has(inputs, "keep_mask")) options.kept_tokens = kept_tokens(inputs);
  const kernels::LogProbs got = kernels::linear_logprob(
      logits_RV, {head_VV, Tensor()}, column(inputs, "targets", at::kLong), options);
  expect_close(got.logprob_R, expected.at("log_prob"), "log_prob");
  expect_close(got.entropy_R, expected.at("entropy"), "entropy");
  const Tensor sum = (column(inputs, "grad_log_prob_weight", dtype) * got.logprob_R).sum() +
                     (column(inputs, "grad_entropy_weight", dtype) * got.entropy_R).sum();
  sum.backward();
  // docs/decisions/0060-algorithms.md: logsumexp, kept in float32, is rounded at its own size.
  if (dtype == at::kFloat && word(c, "name") == "extreme_logits")
    GTEST_SKIP() << "the gradient of extreme logits in float32";
  expect_close(logits_RV.grad(), expected.at("dlogits"), "dlogits");
}

}  // namespace
}  // namespace slime::golden
