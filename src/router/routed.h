#pragma once

/// For tests: a router over stepwise engines, and what its callers are told.

#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "router/router.h"
#include "router/stepwise_engine.h"

namespace slime::router {

inline std::vector<TokenId> prompt_of(TokenId first, int64_t length) {
  std::vector<TokenId> tokens(length);
  for (int64_t i = 0; i < length; ++i) tokens[i] = first + static_cast<TokenId>(i);
  return tokens;
}

/// A seed whose response has so many tokens.
inline uint64_t seed_of_length(std::size_t length, uint64_t from = 0) {
  while (StepwiseEngine::length_of(from) != length) ++from;
  return from;
}

inline engine::GenerateRequest request_of(std::vector<TokenId> prompt, uint64_t seed) {
  engine::GenerateRequest request;
  request.input_ids = std::move(prompt);
  request.return_logprob = true;
  request.sampling.sampling_seed = seed;
  request.sampling.max_new_tokens = 1000;
  return request;
}

/// What an engine that nothing happens to draws.
inline std::vector<TokenId> response_of(uint64_t seed, std::size_t prompt_length) {
  const std::size_t length = StepwiseEngine::length_of(seed);
  std::vector<TokenId> response;
  for (std::size_t i = 0; i + 1 < length; ++i)
    response.push_back(token_at(seed, prompt_length + i));
  response.push_back(kEnd);
  return response;
}

/// A caller's view of its request.
struct Told {
  engine::GenerateUpdate all;
  int num_updates = 0;
  int num_ends = 0;

  engine::EngineClient::OnUpdate sink() {
    return [this](engine::GenerateUpdate update) {
      EXPECT_EQ(num_ends, 0) << "an update after the last one";
      ++num_updates;
      num_ends += update.finish ? 1 : 0;
      const auto append = [](auto& to, const auto& from) {
        to.insert(to.end(), from.begin(), from.end());
      };
      append(all.output_ids, update.output_ids);
      append(all.output_log_probs, update.output_log_probs);
      append(all.versions, update.versions);
      all.finish = update.finish;
      all.rid = update.rid;
      all.prompt_tokens = update.prompt_tokens;
    };
  }
};

struct Routed {
  explicit Routed(std::size_t count) : router({}, clock), engines(count) {
    for (StepwiseEngine& engine : engines) ids.push_back(*router.join(engine));
  }
  engine::RequestHandle submit(Told& told, engine::GenerateRequest request) {
    return router.submit(std::move(request), told.sink());
  }
  void step(int count = 1) {
    for (int i = 0; i < count; ++i)
      for (StepwiseEngine& engine : engines) engine.step();
  }
  SystemClock clock;
  Router router;
  std::deque<StepwiseEngine> engines;
  std::vector<EngineId> ids;
};

}  // namespace slime::router
