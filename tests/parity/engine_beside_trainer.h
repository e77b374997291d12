#pragma once

/// Comparison of an engine's log-probs with the trainer's for the same tokens, by one network.

#include <ATen/ATen.h>

#include "engine_fixture.h"
#include "model/router_pass.h"

namespace slime::testing {

/// Choices that an engine told for all tokens but the last, for a trainer's pass: [layers, tokens, visits].
inline Tensor told_experts(const model::ModelConfig& config, const std::vector<int16_t>& told) {
  const Tensor told_TYK =
      at::tensor(told, at::kShort).view({-1, config.num_layers, config.experts.per_token});
  return at::cat({told_TYK, at::full_like(told_TYK.narrow(0, 0, 1), -1)}).transpose(0, 1);
}

/// Of the last `count` tokens, by the trainer's attention. `told`: whom rows visit; empty: routers are free.
inline Tensor trainers_log_probs(model::Network& network, const std::vector<TokenId>& tokens,
                                 int64_t count, const std::vector<int16_t>& told = {}) {
  const at::Device place = network.weights().flat().device();
  model::TokenBatch batch = pack({{tokens.begin(), tokens.end()}});
  batch.ids_T = batch.ids_T.to(place);
  batch.rotary_row_T = batch.rotary_row_T.to(place);
  model::RouterPass routers;
  if (!told.empty()) {
    routers.num_rows = batch.num_tokens();
    routers.given_YTK = told_experts(network.config(), told).contiguous().to(place);
    batch.routers = &routers;
  }
  model::TreeAttention attention(batch);
  return last_log_probs(network, batch, attention, count).cpu().to(at::kDouble);
}

/// In layers with experts each row visits different ones that there are; of the others all is 0.
inline void expect_choices(const model::ModelConfig& config, const std::vector<int16_t>& told) {
  const Tensor sorted_TYK = std::get<0>(
      at::tensor(told, at::kLong).view({-1, config.num_layers, config.experts.per_token}).sort(2));
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const Tensor of_layer_TK = sorted_TYK.select(1, layer);
    if (!config.experts.are_in(layer)) {
      EXPECT_EQ(of_layer_TK.count_nonzero().item<int64_t>(), 0);
      continue;
    }
    EXPECT_GE(of_layer_TK.min().item<int64_t>(), 0);
    EXPECT_LT(of_layer_TK.max().item<int64_t>(), config.experts.count);
    EXPECT_GT(of_layer_TK.diff(1, 1).min().item<int64_t>(), 0)
        << "an expert twice, layer " << layer;
  }
}

/// Mean absolute difference of sampled tokens' log-probs, and how far log-probs are spread. Of an engine that
/// records choices of experts the trainer visits the same.
struct LogProbDifferences {
  double mean = 0, spread = 0;
};
inline LogProbDifferences engine_beside_trainer(model::Network& network,
                                                const engine::EngineConfig& config, int64_t count) {
  const SystemClock clock;
  Responses responses;
  engine::Engine engine(network, config, clock);
  std::vector<engine::GenerateRequest> requests;
  for (int64_t i = 0; i < count; ++i) {
    // Prompts that others begin with too, and one of two lengths.
    requests.push_back(sampled_request(some_tokens(i % 3 == 2 ? 30 : 700, i % 3), 60, 100 + i));
    requests.back().rid = std::to_string(i);
    requests.back().return_routed_experts = config.records_experts;
    engine.submit(requests.back(), responses.sink());
  }
  std::vector<Tensor> sampled, scored;
  for (const auto& request : requests) {
    const engine::GenerateUpdate out = responses.wait(request.rid);
    std::vector<TokenId> tokens = request.input_ids;
    tokens.insert(tokens.end(), out.output_ids.begin(), out.output_ids.end());
    const auto length = static_cast<int64_t>(out.output_log_probs.size());
    EXPECT_EQ(length, 60);
    sampled.push_back(
        at::tensor(std::vector<double>(out.output_log_probs.begin(), out.output_log_probs.end()),
                   at::kDouble));
    if (config.records_experts) {
      EXPECT_EQ(static_cast<int64_t>(out.routed_experts.size()),
                (static_cast<int64_t>(tokens.size()) - 1) * network.config().routing_width());
      expect_choices(network.config(), out.routed_experts);
    }
    scored.push_back(trainers_log_probs(network, tokens, length, out.routed_experts));
  }
  const Tensor a = at::cat(sampled), b = at::cat(scored);
  return {(a - b).abs().mean().item<double>(), b.std().item<double>()};
}

}  // namespace slime::testing
