#pragma once

/// What an engine draws against the trainer's scores of the same tokens, by one network.

#include <ATen/ATen.h>

#include "engine_fixture.h"

namespace slime::testing {

/// Of the last `count` tokens, by the trainer's attention.
inline Tensor trainers_log_probs(model::Network& network, const std::vector<TokenId>& tokens,
                                 int64_t count) {
  const at::Device place = network.weights().flat().device();
  model::TokenBatch batch = pack({{tokens.begin(), tokens.end()}});
  batch.ids_T = batch.ids_T.to(place);
  batch.positions_T = batch.positions_T.to(place);
  model::TreeAttention attention(batch);
  return last_log_probs(network, batch, attention, count).cpu().to(at::kDouble);
}

/// Mean absolute difference of drawn tokens' log-probs, and how far log-probs are spread.
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
    engine.submit(requests.back(), responses.sink());
  }
  std::vector<Tensor> drawn, scored;
  for (const auto& request : requests) {
    const engine::GenerateUpdate out = responses.wait(request.rid);
    std::vector<TokenId> tokens = request.input_ids;
    tokens.insert(tokens.end(), out.output_ids.begin(), out.output_ids.end());
    const auto length = static_cast<int64_t>(out.output_log_probs.size());
    EXPECT_EQ(length, 60);
    drawn.push_back(
        at::tensor(std::vector<double>(out.output_log_probs.begin(), out.output_log_probs.end()),
                   at::kDouble));
    scored.push_back(trainers_log_probs(network, tokens, length));
  }
  const Tensor a = at::cat(drawn), b = at::cat(scored);
  return {(a - b).abs().mean().item<double>(), b.std().item<double>()};
}

}  // namespace slime::testing
