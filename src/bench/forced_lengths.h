#pragma once

/// An engine that ends each sample of a rollout at a length of its own.

#include <charconv>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "engine/client.h"

namespace slime::bench {

class ForcedLengths final : public engine::EngineClient {
 public:
  /// `length_of`: of the whole response of a sample, by its ordinal. All prompts have
  /// `prompt_tokens`; what a request has beyond is response drawn before.
  ForcedLengths(engine::EngineClient& engine, int64_t prompt_tokens,
                std::function<int64_t(int64_t ordinal)> length_of)
      : engine_(engine), prompt_tokens_(prompt_tokens), length_of_(std::move(length_of)) {}

  engine::RequestHandle submit(engine::GenerateRequest request, OnUpdate on_update) override {
    const int64_t drawn = static_cast<int64_t>(request.input_ids.size()) - prompt_tokens_;
    request.sampling.max_new_tokens = length_of_(ordinal_in(request.rid)) - drawn;
    check(request.sampling.max_new_tokens > 0, "a sample that has its length is not drawn again");
    return engine_.submit(std::move(request), std::move(on_update));
  }
  Expected<void> abort(engine::RequestHandle request) override { return engine_.abort(request); }
  Expected<void> abort_prefix(const std::string& prefix) override {
    return engine_.abort_prefix(prefix);
  }
  Expected<void> abort_all() override { return engine_.abort_all(); }
  Expected<void> pause(engine::PauseMode mode) override { return engine_.pause(mode); }
  Expected<void> resume() override { return engine_.resume(); }
  Expected<bool> flush_cache() override { return engine_.flush_cache(); }
  Expected<void> sleep() override { return engine_.sleep(); }
  Expected<void> wake() override { return engine_.wake(); }
  Expected<void> update_weights(const engine::WeightUpdate& update) override {
    return engine_.update_weights(update);
  }
  WeightVersion weight_version() const override { return engine_.weight_version(); }
  Expected<engine::EngineLoad> load() const override { return engine_.load(); }

 private:
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

  engine::EngineClient& engine_;
  const int64_t prompt_tokens_;
  const std::function<int64_t(int64_t)> length_of_;
};

}  // namespace slime::bench
