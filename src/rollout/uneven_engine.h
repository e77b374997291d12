#pragma once

/// For tests: an engine without a model, as uneven in time as a real one.

#include <atomic>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "core/bounded_queue.h"
#include "engine/client.h"

namespace slime::rollout {

/// Requests draw a token at a time on a thread of its own, in uneven steps: in each round every
/// request draws or not, as chance has it. A response has `length_of` tokens, the last of them
/// id 2, and at most max_new_tokens. One class because it is one interface, and tests set and look at all of it.
class UnevenEngine final : public engine::EngineClient {
 public:
  UnevenEngine() : thread_([this] { serve(); }) {}
  ~UnevenEngine() override {
    is_paused = false;
    queue_.close();
    thread_.join();
  }

  engine::RequestHandle submit(engine::GenerateRequest request, OnUpdate on_update) override {
    const auto handle = static_cast<engine::RequestHandle>(++num_submitted_);
    queue_.push({handle, std::move(request), std::move(on_update)});
    return handle;
  }
  Expected<void> abort(engine::RequestHandle request) override {
    queue_.push({request, {}, nullptr});
    if (loses_answers_to_aborts) return slime::failure("no answer to an abort");
    return {};
  }
  Expected<void> abort_prefix(const std::string&) override {
    return slime::failure("the rollout aborts its own requests");
  }
  Expected<void> abort_all() override {
    return slime::failure("the rollout aborts its own requests");
  }
  Expected<void> pause(engine::PauseMode) override {
    if (num_failing_pauses-- > 0) return slime::failure("it does not pause");
    is_paused = true;
    return {};
  }
  Expected<void> resume() override {
    if (num_failing_resumes-- > 0) return slime::failure("it does not resume");
    is_paused = false;
    return {};
  }
  Expected<bool> flush_cache() override { return true; }
  Expected<void> sleep() override { return {}; }
  Expected<void> wake() override { return {}; }
  Expected<void> update_weights(const engine::WeightUpdate&) override { return {}; }
  WeightVersion weight_version() const override { return version; }
  Expected<engine::EngineLoad> load() const override { return engine::EngineLoad{}; }

  WeightVersion version = 7;
  std::function<int64_t(const engine::GenerateRequest&)> length_of =
      [](const engine::GenerateRequest&) { return 3; };
  std::function<void(const engine::GenerateRequest&)> on_admitted;  // on the engine's thread
  std::function<void(const engine::GenerateRequest&)> on_drawn;     // the same, of each token
  std::vector<TokenId> never;            // first tokens of prompts whose responses do not end
  std::vector<TokenId> refused;          // first tokens of prompts that it has no room for
  std::atomic<bool> accepts_all{false};  // refuses nobody any more
  bool ends_twice = false;               // last updates are told twice
  std::optional<engine::FinishReason::Cause> failure;  // what every request is answered with
  std::atomic<int64_t> num_submitted_{0};
  std::atomic<bool> is_paused{false};
  std::atomic<bool> loses_answers_to_aborts{false};  // it does abort
  std::atomic<int> num_failing_pauses{0};
  std::atomic<int> num_failing_resumes{0};

 private:
  struct Job {
    engine::RequestHandle handle{};
    engine::GenerateRequest request;
    OnUpdate on_update;
    int64_t length = 0;
    bool is_cut = false;  // by max_new_tokens
    int64_t num_drawn = 0;
  };

  void serve() {
    std::mt19937 chance(std::random_device{}());
    std::vector<Job> running;
    while (true) {
      std::optional<Job> job = running.empty() ? queue_.pop() : queue_.try_pop();
      if (!job && running.empty()) return;
      if (!job && is_paused) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      } else if (!job) {
        std::erase_if(running, [&](Job& drawing) { return chance() % 2 == 0 && draw(drawing); });
        if (chance() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
      } else if (!job->on_update) {
        std::erase_if(running, [&](Job& other) {
          if (other.handle != job->handle) return false;
          abort_job(other, engine::FinishReason::Cause::kRequested, "aborted by the caller");
          return true;
        });
      } else if (!accepts_all &&
                 std::ranges::find(refused, job->request.input_ids.front()) != refused.end()) {
        abort_job(*job, engine::FinishReason::Cause::kQueueFull, "too many wait");
      } else if (failure) {
        abort_job(*job, *failure, "the engine failed: no more room");
      } else {
        const TokenId first = job->request.input_ids.front();
        if (on_admitted) on_admitted(job->request);
        const int64_t most = job->request.sampling.max_new_tokens;
        const bool ends = std::ranges::find(never, first) == never.end();
        const int64_t length = ends ? length_of(job->request) : std::numeric_limits<int64_t>::max();
        job->is_cut = ends && length > most;
        job->length = ends ? std::min(length, most) : length;
        running.push_back(std::move(*job));
      }
    }
  }

  /// True: that was its last token.
  bool draw(Job& job) const {
    const bool is_last = ++job.num_drawn == job.length;
    engine::GenerateUpdate update;
    update.output_ids = {is_last ? TokenId{2} : job.request.input_ids.front()};
    update.output_log_probs = {-0.5F};
    update.versions = {{version, 1}};
    if (job.request.return_top_p_token_ids) {
      update.top_p_ids = {update.output_ids.front(), 77};
      update.top_p_counts = {2};
    }
    using Kind = engine::FinishReason::Kind;
    if (is_last)
      update.finish = engine::FinishReason{.kind = job.is_cut ? Kind::kLength : Kind::kStop};
    if (is_last && ends_twice) job.on_update(update);
    job.on_update(std::move(update));
    if (on_drawn) on_drawn(job.request);
    return is_last;
  }

  static void abort_job(Job& job, engine::FinishReason::Cause cause, const std::string& why) {
    engine::GenerateUpdate update;
    update.finish = engine::aborted(cause, why);
    job.on_update(std::move(update));
  }

  BoundedQueue<Job> queue_{4096};
  std::thread thread_;
};

}  // namespace slime::rollout
