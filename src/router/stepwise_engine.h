#pragma once

/// For tests: an engine without a model that draws when it is told to, and may die.

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/splitmix64.h"
#include "engine/client.h"

namespace slime::router {

/// What any engine draws at a position of a sequence: a function of the seed and the position.
inline TokenId token_at(uint64_t seed, std::size_t position) {
  return static_cast<TokenId>(splitmix64(seed + position) % 1000) + 3;
}
inline constexpr TokenId kEnd = 2;

/// Draws a token for each of the first `max_running` requests in step(), whose thread is the
/// engine's. Whole responses have `length_of(seed)` tokens, the last of them kEnd. One class
/// because it is one interface, and tests set and look at all of it.
class StepwiseEngine final : public engine::EngineClient {
 public:
  static std::size_t length_of(uint64_t seed) { return 1 + splitmix64(~seed) % 40; }

  engine::RequestHandle submit(engine::GenerateRequest request, OnUpdate on_update) override {
    std::unique_lock lock(mutex_);
    const auto handle = static_cast<engine::RequestHandle>(++num_submitted_);
    std::optional<engine::FinishReason> refusal = refusal_;
    if (is_dead_) refusal = lost();
    if (!refusal) {
      requests_seen.push_back(request);
      running_.emplace(handle, Running{std::move(request), std::move(on_update), {}});
      return handle;
    }
    lock.unlock();
    tell_end(request, on_update, *refusal);
    return handle;
  }
  Expected<void> abort(engine::RequestHandle request) override {
    const std::lock_guard lock(mutex_);
    aborted_.push_back(request);  // read by the next step
    return {};
  }
  Expected<void> abort_prefix(const std::string&) override { return failure("not by a router"); }
  Expected<void> abort_all() override { return failure("not by a router"); }
  Expected<void> pause(engine::PauseMode mode) override {
    return order([&] { is_paused = true; }, mode == engine::PauseMode::kAbort);
  }
  Expected<void> resume() override {
    return order([&] { is_paused = false; }, false);
  }
  Expected<bool> flush_cache() override { return true; }
  Expected<void> sleep() override {
    return order([&] { is_asleep = true; }, false);
  }
  Expected<void> wake() override {
    return order([&] { is_asleep = false; }, false);
  }
  Expected<void> update_weights(const engine::WeightUpdate& update) override {
    if (refuses_updates) return failure("the update does not fit");
    return order([&] { version = update.version; },
                 update.running == engine::RunningRequests::kAbort);
  }
  WeightVersion weight_version() const override { return version; }
  Expected<engine::EngineLoad> load() const override {
    const std::lock_guard lock(mutex_);
    if (is_dead_) return failure("dead");
    return engine::EngineLoad{.num_running = static_cast<int64_t>(running_.size())};
  }

  void step() {
    std::vector<std::pair<OnUpdate, engine::GenerateUpdate>> told;
    {
      const std::lock_guard lock(mutex_);
      for (const engine::RequestHandle handle : std::exchange(aborted_, {})) {
        const auto found = running_.find(handle);
        if (found == running_.end()) continue;
        engine::GenerateUpdate last = std::move(found->second.pending);
        last.finish = engine::aborted(engine::FinishReason::Cause::kRequested, "aborted");
        told.emplace_back(std::move(found->second.on_update), std::move(last));
        running_.erase(found);
      }
      int64_t left = is_paused || is_asleep ? 0 : max_running;
      for (auto it = running_.begin(); it != running_.end() && left-- > 0;) {
        const bool is_last = draw(it->second);
        engine::GenerateUpdate& pending = it->second.pending;
        const auto due = static_cast<std::size_t>(it->second.request.stream_interval);
        if (is_last || (due > 0 && pending.output_ids.size() >= due)) {
          told.emplace_back(it->second.on_update, std::exchange(pending, {}));
        }
        it = is_last ? running_.erase(it) : std::next(it);
      }
    }
    for (auto& [on_update, update] : told) {
      update.rid = "the engine's";
      if (ends_twice && update.finish) on_update(update);
      on_update(std::move(update));
    }
  }

  /// What it has not told is gone.
  void die(engine::FinishReason::Cause cause = engine::FinishReason::Cause::kEngineLost) {
    std::map<engine::RequestHandle, Running> ended;
    {
      const std::lock_guard lock(mutex_);
      is_dead_ = cause == engine::FinishReason::Cause::kEngineLost;
      ended = std::exchange(running_, {});
    }
    for (auto& [handle, running] : ended)
      tell_end(running.request, running.on_update, engine::aborted(cause, "it died"));
  }
  void refuse_all(std::optional<engine::FinishReason> why) {
    const std::lock_guard lock(mutex_);
    refusal_ = std::move(why);
  }
  std::size_t num_open() const {
    const std::lock_guard lock(mutex_);
    return running_.size();
  }

  WeightVersion version = 7;
  int64_t max_running = 1000;
  bool is_paused = false;
  bool is_asleep = false;
  bool refuses_updates = false;
  bool ends_twice = false;
  std::vector<engine::GenerateRequest> requests_seen;

 private:
  struct Running {
    engine::GenerateRequest request;
    OnUpdate on_update;
    engine::GenerateUpdate pending;
  };

  static engine::FinishReason lost() {
    return engine::aborted(engine::FinishReason::Cause::kEngineLost, "it is dead");
  }
  static void tell_end(const engine::GenerateRequest& request, const OnUpdate& on_update,
                       engine::FinishReason why) {
    engine::GenerateUpdate update;
    update.rid = request.rid;
    update.prompt_tokens = static_cast<int64_t>(request.input_ids.size());
    update.finish = std::move(why);
    on_update(std::move(update));
  }

  /// True: that was its last token.
  bool draw(Running& running) const {
    engine::GenerateRequest& request = running.request;
    const uint64_t seed = *request.sampling.sampling_seed;
    const bool ends = static_cast<std::size_t>(request.num_drawn) + 1 >= length_of(seed);
    const TokenId token = ends ? kEnd : token_at(seed, request.input_ids.size());
    request.input_ids.push_back(token);
    ++request.num_drawn;
    running.pending.output_ids.push_back(token);
    running.pending.output_log_probs.push_back(-static_cast<float>(token));
    if (running.pending.versions.empty()) running.pending.versions.push_back({version, 0});
    ++running.pending.versions.back().num_tokens;
    const bool is_full = --request.sampling.max_new_tokens == 0;
    using Kind = engine::FinishReason::Kind;
    if (ends || is_full)
      running.pending.finish = engine::FinishReason{.kind = ends ? Kind::kStop : Kind::kLength};
    return ends || is_full;
  }

  template <typename Fn>
  Expected<void> order(const Fn& change, bool ends_all) {
    std::map<engine::RequestHandle, Running> ended;
    {
      const std::lock_guard lock(mutex_);
      if (is_dead_) return failure("dead");
      change();
      if (ends_all) ended = std::exchange(running_, {});
    }
    for (auto& [handle, running] : ended) {
      running.pending.finish = engine::aborted(engine::FinishReason::Cause::kRequested, "all");
      running.on_update(std::move(running.pending));
    }
    return {};
  }

  mutable std::mutex mutex_;
  std::map<engine::RequestHandle, Running> running_;  // guarded by mutex_
  std::vector<engine::RequestHandle> aborted_;        // guarded by mutex_
  std::optional<engine::FinishReason> refusal_;       // guarded by mutex_
  bool is_dead_ = false;                              // guarded by mutex_
  uint64_t num_submitted_ = 0;                        // guarded by mutex_
};

}  // namespace slime::router
