#pragma once

/// An engine that ends each sample of a rollout at a length of its own.

#include <atomic>
#include <charconv>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "engine/forwarding_client.h"

namespace slime::bench {

class ForcedLengths final : public engine::ForwardingClient {
 public:
  /// `length_of`: of the whole response of a sample, by its ordinal. All prompts have
  /// `prompt_tokens`; what a request has beyond is response sampled before.
  ForcedLengths(engine::EngineClient& engine, int64_t prompt_tokens,
                std::function<int64_t(int64_t ordinal)> length_of)
      : ForwardingClient(engine), prompt_tokens_(prompt_tokens), length_of_(std::move(length_of)) {}

  engine::RequestHandle submit(engine::GenerateRequest request, OnUpdate on_update) override {
    const int64_t sampled = static_cast<int64_t>(request.input_ids.size()) - prompt_tokens_;
    request.sampling.max_new_tokens = length_of_(ordinal_in(request.rid)) - sampled;
    check(request.sampling.max_new_tokens > 0, "a sample that has its length is not sampled again");
    return engine_.submit(std::move(request),
                          [this, on_update = std::move(on_update)](engine::GenerateUpdate update) {
                            if (update.finish) {
                              all_ += update.prompt_tokens;
                              found_ += update.cached_tokens;
                            }
                            {
                              const std::lock_guard lock(mutex_);
                              drafts_ += update.drafts;
                            }
                            on_update(std::move(update));
                          });
  }

  /// Of the requests that ended since the call before.
  struct PromptTokens {
    int64_t all = 0;
    int64_t found = 0;  // in the prefix tree
  };
  PromptTokens take_prompt_tokens() {
    return {.all = all_.exchange(0), .found = found_.exchange(0)};
  }

  /// Of all requests since the call before.
  DraftCounts take_drafts() {
    const std::lock_guard lock(mutex_);
    return std::exchange(drafts_, {});
  }

  /// "rollout-17.0": sample 17, given out for the first time.
  static int64_t ordinal_in(std::string_view rid) {
    const std::size_t dash = rid.find('-');
    check(dash != std::string_view::npos, "a rollout's request names its sample");
    int64_t ordinal = 0;
    const auto [end, error] =
        std::from_chars(rid.data() + dash + 1, rid.data() + rid.size(), ordinal);
    check(error == std::errc() && end != rid.data() + rid.size() && *end == '.',
          "a rollout's request names its sample and its attempt");
    return ordinal;
  }

 private:
  std::atomic<int64_t> all_{0};
  std::atomic<int64_t> found_{0};
  std::mutex mutex_;
  DraftCounts drafts_;  // guarded by mutex_
  const int64_t prompt_tokens_;
  const std::function<int64_t(int64_t)> length_of_;
};

}  // namespace slime::bench
