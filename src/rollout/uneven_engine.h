#pragma once

/// For tests: an engine without a model, as uneven in time as a real one.

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "engine/scripted_engine.h"

namespace slime::rollout {

/// A response has `length_of` tokens, the last of them id 2, and at most max_new_tokens.
class UnevenEngine final : public engine::ScriptedEngine {
 public:
  UnevenEngine()
      : ScriptedEngine([this](auto& running, WeightVersion version) { draw(running, version); },
                       engine::Pace::kUneven) {
    refuses = [this](const engine::GenerateRequest& request) -> std::optional<Finish> {
      using Cause = Finish::Cause;
      if (!accepts_all && has(refused, request))
        return engine::aborted(Cause::kQueueFull, "too many wait");
      if (failure) return engine::aborted(*failure, "the engine failed: no more room");
      return std::nullopt;
    };
  }
  ~UnevenEngine() override { stop(); }

  std::function<int64_t(const engine::GenerateRequest&)> length_of =
      [](const engine::GenerateRequest&) { return 3; };
  std::vector<TokenId> never;            // first tokens of prompts whose responses do not end
  std::vector<TokenId> refused;          // first tokens of prompts that it has no room for
  std::atomic<bool> accepts_all{false};  // refuses nobody any more
  std::optional<engine::FinishReason::Cause> failure;  // what every request is answered with

 private:
  using Finish = engine::FinishReason;

  static bool has(const std::vector<TokenId>& firsts, const engine::GenerateRequest& request) {
    return std::ranges::find(firsts, request.input_ids.front()) != firsts.end();
  }

  void draw(engine::ScriptedRequest& running, WeightVersion version) const {
    const engine::GenerateRequest& request = running.request;
    if (running.num_sampled == 0) {
      running.length =
          has(never, request) ? std::numeric_limits<int64_t>::max() : length_of(request);
    }
    // A response that does not end is not cut either.
    const bool is_endless = running.length == std::numeric_limits<int64_t>::max();
    const int64_t most = request.sampling.max_new_tokens;
    const int64_t length = is_endless ? running.length : std::min(running.length, most);
    const bool is_last = running.num_sampled + 1 == length;
    running.draw(is_last ? TokenId{2} : request.input_ids.front(), -0.5F, version);
    if (request.return_top_p_token_ids) {
      running.pending.top_p_ids = {running.pending.output_ids.front(), 77};
      running.pending.top_p_counts = {2};
    }
    if (is_last)
      running.finish(running.length > most ? Finish::Kind::kLength : Finish::Kind::kStop);
  }
};

}  // namespace slime::rollout
