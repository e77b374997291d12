#pragma once

/// An engine over a golden model, and a caller that waits.

#include <condition_variable>
#include <map>
#include <mutex>

#include "core/clock.h"
#include "engine/engine.h"
#include "fixture_models.h"

namespace slime::testing {

/// Collects the updates of many requests, merged per request id.
class Responses {
 public:
  engine::EngineClient::OnUpdate sink() {
    return [this](engine::GenerateUpdate update) {
      const std::lock_guard lock(mutex_);
      engine::GenerateUpdate& all = by_rid_[update.rid];
      const auto append = [](auto& to, auto& from) {
        to.insert(to.end(), from.begin(), from.end());
      };
      append(all.output_ids, update.output_ids);
      append(all.output_log_probs, update.output_log_probs);
      append(all.output_free_log_probs, update.output_free_log_probs);
      all.num_constrained += update.num_constrained;
      append(all.output_top, update.output_top);
      append(all.output_asked, update.output_asked);
      append(all.top_p_ids, update.top_p_ids);
      append(all.top_p_counts, update.top_p_counts);
      append(all.top_p_log_probs, update.top_p_log_probs);
      append(all.routed_experts, update.routed_experts);
      append(all.input_log_probs, update.input_log_probs);
      append(all.input_top, update.input_top);
      append(all.input_asked, update.input_asked);
      if (update.scored_by) all.scored_by = update.scored_by;
      for (const VersionRun& run : update.versions) {
        if (all.versions.empty() || all.versions.back().version != run.version) {
          all.versions.push_back(run);
        } else {
          all.versions.back().num_tokens += run.num_tokens;
        }
      }
      all.rid = update.rid;
      all.prompt_tokens = update.prompt_tokens;
      all.cached_tokens = update.cached_tokens;
      all.num_retractions = update.num_retractions;
      all.drafts += update.drafts;
      EXPECT_FALSE(all.finish.has_value()) << update.rid << " got an update after its last one";
      all.finish = update.finish;
      changed_.notify_all();
    };
  }

  engine::GenerateUpdate wait(const std::string& rid) {
    return wait_until(
        rid, [](const engine::GenerateUpdate& update) { return update.finish.has_value(); });
  }

  engine::GenerateUpdate wait_for_tokens(const std::string& rid, std::size_t count) {
    return wait_until(rid, [count](const engine::GenerateUpdate& update) {
      return update.finish.has_value() || update.output_ids.size() >= count;
    });
  }

 private:
  template <typename Condition>
  engine::GenerateUpdate wait_until(const std::string& rid, const Condition& condition) {
    std::unique_lock lock(mutex_);
    const bool came =
        changed_.wait_for(lock, std::chrono::seconds(60), [&] { return condition(by_rid_[rid]); });
    EXPECT_TRUE(came) << "no answer for " << rid;
    return by_rid_[rid];
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, engine::GenerateUpdate> by_rid_;  // guarded by mutex_
};

class TestEngine {
 public:
  explicit TestEngine(const std::string& model, engine::EngineConfig config = {},
                      const std::string& dtype = "float32")
      : TestEngine(model, config, model::Precision::of(dtype)) {}
  TestEngine(const std::string& model, engine::EngineConfig config,
             const model::Precision& precision)
      : TestEngine(model::load_network(golden_models::directory(model), precision), config) {}
  TestEngine(std::unique_ptr<model::Network> network, engine::EngineConfig config,
             const engine::MakeStepRunner& make_runner = engine::make_step_runner)
      : network_(std::move(network)), engine_(*network_, small(config), clock_, make_runner) {}

  engine::Engine& engine() { return engine_; }
  model::Network& network() { return *network_; }
  Responses& responses() { return responses_; }

  engine::RequestHandle submit(engine::GenerateRequest request) {
    return engine_.submit(std::move(request), responses_.sink());
  }
  engine::GenerateUpdate generate(engine::GenerateRequest request) {
    if (request.rid.empty()) request.rid = "test-" + std::to_string(next_++);
    const std::string rid = request.rid;
    submit(std::move(request));
    return responses_.wait(rid);
  }

 private:
  static engine::EngineConfig small(engine::EngineConfig config) {
    if (config.kv_cache_bytes == engine::EngineConfig{}.kv_cache_bytes)
      config.kv_cache_bytes = 8 << 20;
    return config;
  }

  SystemClock clock_;
  std::unique_ptr<model::Network> network_;
  Responses responses_;
  engine::Engine engine_;
  int next_ = 0;
};

/// The answers to requests that are there together, in their order.
inline std::vector<engine::GenerateUpdate> run_together(
    const std::vector<engine::GenerateRequest>& requests, const engine::EngineConfig& config,
    const model::Precision& precision = model::Precision::of("float32")) {
  TestEngine bench("qwen3", config, precision);
  for (const auto& request : requests) bench.submit(request);
  std::vector<engine::GenerateUpdate> out;
  for (const auto& request : requests) out.push_back(bench.responses().wait(request.rid));
  return out;
}

inline engine::GenerateRequest greedy_request(std::vector<TokenId> prompt, int64_t max_new_tokens) {
  engine::GenerateRequest request;
  request.input_ids = std::move(prompt);
  request.sampling.max_new_tokens = max_new_tokens;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.return_logprob = true;
  return request;
}

inline engine::GenerateRequest sampled_request(std::vector<TokenId> prompt, int64_t max_new_tokens,
                                               uint64_t seed) {
  engine::GenerateRequest request = greedy_request(std::move(prompt), max_new_tokens);
  request.sampling.temperature = 1;
  request.sampling.sampling_seed = seed;
  return request;
}

/// Ids below `below`, which is at most the vocabulary.
inline std::vector<TokenId> some_tokens(int64_t count, TokenId start = 3, int64_t below = 300) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<TokenId>((start + i * i * 7 + i) % below));
  return tokens;
}

}  // namespace slime::testing
