#pragma once

/// Admission of waiting requests, with the prefix and state each one starts from.

#include <cstdint>
#include <memory>

#include "core/clock.h"
#include "core/expected.h"
#include "engine/client.h"
#include "engine/engine_config.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "engine/token_constraint.h"

namespace slime::engine {

/// A call of submit().
struct Submission {
  RequestHandle handle{};
  GenerateRequest request;
  EngineClient::OnUpdate on_update;
  Clock::TimePoint submitted;
  std::unique_ptr<TokenConstraint> constraint = {};
};

/// Tells the caller that the request ends before it began. Any thread.
void refuse(const Submission& submission, FinishReason reason);

FinishReason queue_is_full(const EngineConfig& config);

/// Owned by the engine's thread.
class Admission {
 public:
  /// `config` is complete (engine_config.h) and outlives the object.
  Admission(const EngineConfig& config, model::Network& network, int64_t num_pages);

  /// Prompt and response together cannot be longer: the context, or the whole cache if that is
  /// smaller and does not hold what a request needs behind whose windows pages are given back.
  int64_t max_request_tokens() const { return max_request_tokens_; }

  int64_t vocab_size() const { return vocab_size_; }

  /// Whether the last step left some waiting: then whoever comes waits behind them.
  void note_line(bool has_line) { has_line_ = has_line; }

  /// Hands the request to the scheduler, or refuses it. It gets a rid when it has none.
  void admit(Submission submission, Scheduler& scheduler);

 private:
  std::vector<std::string> problems_with(const GenerateRequest& request) const;
  /// Requests that wait for others: without those for which the next step may have room.
  int64_t num_in_line(const Scheduler& scheduler) const;

  const EngineConfig& config_;
  const int64_t vocab_size_;
  const int64_t max_request_tokens_;
  const bool takes_media_;
  bool has_line_ = false;
  uint64_t num_submitted_ = 0;  // numbers the random streams of requests without a seed
};

}  // namespace slime::engine
