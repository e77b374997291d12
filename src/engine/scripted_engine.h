#pragma once

/// For tests: an engine without a model. A script says what requests draw; a test says when, by
/// step(), or the engine draws on a thread of its own.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/client.h"

namespace slime::engine {

/// A request that runs.
struct ScriptedRequest {
  GenerateRequest request;
  EngineClient::OnUpdate on_update;
  int64_t num_sampled = 0;  // by this engine
  int64_t length = 0;       // the script's
  bool has_begun = false;
  bool is_aborted = false;
  GenerateUpdate pending;  // sampled and not told yet

  /// The next token, of the version, and its log-prob.
  void draw(TokenId token, float log_prob, WeightVersion version) {
    ++num_sampled;
    pending.output_ids.push_back(token);
    pending.output_log_probs.push_back(log_prob);
    if (pending.versions.empty()) pending.versions.push_back({version, 0});
    ++pending.versions.back().num_tokens;
  }
  void finish(FinishReason::Kind kind) { pending.finish = FinishReason{.kind = kind}; }
};

enum class Pace {
  kByHand,  // a step is a call of step()
  kSteady,  // on a thread, as long as there is work
  kUneven,  // on a thread; in each step requests draw or not, as chance has it
};

/// One class because it is one interface with one lock, and tests set and look at all of it.
class ScriptedEngine : public EngineClient {
 public:
  /// Draws at most one token, or finishes; called with the lock held.
  using Script = std::function<void(ScriptedRequest&, WeightVersion)>;

  explicit ScriptedEngine(Script script, Pace pace = Pace::kByHand)
      : script_(std::move(script)), is_uneven_(pace == Pace::kUneven) {
    if (pace != Pace::kByHand) thread_.emplace([this](std::stop_token stop) { run(stop); });
  }
  ~ScriptedEngine() override { stop(); }
  ScriptedEngine(const ScriptedEngine&) = delete;
  ScriptedEngine& operator=(const ScriptedEngine&) = delete;

  RequestHandle submit(GenerateRequest request, OnUpdate on_update) override {
    std::unique_lock lock(mutex_);
    const auto handle = static_cast<RequestHandle>(++num_submitted_);
    requests_seen.push_back(request);
    if (auto refusal = refusal_of(request)) {
      lock.unlock();
      tell_end(request, on_update, std::move(*refusal));
      return handle;
    }
    read([this, handle, started = ScriptedRequest{std::move(request), std::move(on_update)}] {
      running_.emplace(handle, started);
    });
    return handle;
  }
  Expected<void> abort(RequestHandle handle) override {
    abort_where([handle](RequestHandle other, const auto&) { return other == handle; });
    if (loses_answers_to_aborts) return failure("no answer to an abort");
    return {};
  }
  Expected<void> abort_prefix(const std::string& prefix) override {
    if (is_shared) return failure("its callers abort their own requests");
    abort_where([prefix](RequestHandle, const ScriptedRequest& other) {
      return other.request.rid.starts_with(prefix);
    });
    return {};
  }
  Expected<void> abort_all() override { return abort_prefix(""); }
  Expected<void> pause(PauseMode mode) override {
    if (num_failing_pauses-- > 0) return failure("it does not pause");
    return order([this] { is_paused = true; }, mode == PauseMode::kAbort);
  }
  Expected<void> resume() override {
    if (num_failing_resumes-- > 0) return failure("it does not resume");
    return order([this] { is_paused = false; }, false);
  }
  Expected<bool> flush_cache() override { return num_open() == 0; }
  Expected<void> sleep() override {
    return order([this] { is_asleep = true; }, false);
  }
  Expected<void> wake() override {
    return order([this] { is_asleep = false; }, false);
  }
  Expected<void> update_weights(const WeightUpdate& update) override {
    if (on_update_weights) {
      if (Expected<void> allowed = on_update_weights(update); !allowed) return allowed;
    }
    Expected<void> done = order(
        [&] {
          version = update.version;
          update_versions_.push_back(update.version);
          if (update.stays_paused) is_paused = true;
        },
        update.running == RunningRequests::kAbort);
    std::this_thread::sleep_for(update_time);
    return done;
  }
  /// Two tensors, of the version; a comparison finds the first changed.
  Expected<WeightChecksums> check_weights(WeightCheck check) override {
    if (check == WeightCheck::kCompare) return failure("1 of 2 tensors differ: a");
    return WeightChecksums{{"a", static_cast<uint64_t>(version.load())}, {"b", 255}};
  }
  WeightVersion weight_version() const override { return version; }
  Expected<EngineLoad> load() const override {
    const std::lock_guard lock(mutex_);
    if (is_dead_) return failure("dead");
    return EngineLoad{.num_running = static_cast<int64_t>(running_.size()),
                      .num_kv_tokens = 1000,
                      .steps_done = num_steps_,
                      .seconds_without_progress = seconds_without_progress,
                      .is_paused = is_paused || is_asleep,
                      .drafts = drafts};
  }

  /// Aborted requests end; each of the first `max_running` others draws.
  void step() {
    std::vector<Told> told;
    std::vector<GenerateRequest> begun;
    {
      const std::lock_guard lock(mutex_);
      for (auto& [handle, running] : running_)
        if (!std::exchange(running.has_begun, true) && on_admitted)
          begun.push_back(running.request);
      collect_aborted(told);
      int64_t left = is_paused || is_asleep ? 0 : max_running;
      for (auto at = running_.begin(); at != running_.end() && left-- > 0;) {
        if (is_uneven_ && chance_() % 2 == 0) {
          ++at;
        } else {
          at = draw(at, told);
        }
      }
      ++num_steps_;
    }
    for (const GenerateRequest& request : begun) on_admitted(request);
    tell(std::move(told));
  }
  /// The request draws, whatever the others do; nothing when it has ended.
  void step_of(RequestHandle handle) {
    std::vector<Told> told;
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = running_.find(handle); found != running_.end()) draw(found, told);
    }
    tell(std::move(told));
  }
  /// What was aborted ends.
  void end_aborted() {
    std::vector<Told> told;
    {
      const std::lock_guard lock(mutex_);
      collect_aborted(told);
    }
    tell(std::move(told));
  }

  /// What it has not told is gone. An engine that failed lives on.
  void die(FinishReason::Cause cause = FinishReason::Cause::kEngineLost) {
    std::map<RequestHandle, ScriptedRequest> ended;
    {
      const std::lock_guard lock(mutex_);
      is_dead_ = cause == FinishReason::Cause::kEngineLost;
      ended = std::exchange(running_, {});
    }
    for (auto& [handle, running] : ended)
      tell_end(running.request, running.on_update, aborted(cause, "it died"));
  }
  void refuse_all(std::optional<FinishReason> why) {
    const std::lock_guard lock(mutex_);
    refuses = [why = std::move(why)](const GenerateRequest&) { return why; };
  }
  /// False: requests and aborts wait, as they do while a step is long; true: they are read, in
  /// their order.
  void set_is_reading(bool is_reading) {
    const std::lock_guard lock(mutex_);
    is_reading_ = is_reading;
    read([] {});
  }
  std::size_t num_open() const {
    const std::lock_guard lock(mutex_);
    return running_.size();
  }
  /// As they came.
  std::vector<GenerateRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_seen;
  }
  /// Of the updates that were carried out.
  std::vector<WeightVersion> update_versions() const {
    const std::lock_guard lock(mutex_);
    return update_versions_;
  }

  /// Ends the thread: in the destructors of classes whose scripts use members of their own.
  void stop() { thread_.reset(); }

  // How it behaves. Set before the first request, but for what is atomic.
  std::atomic<WeightVersion> version{7};
  int64_t max_running = 1000;
  std::atomic<bool> is_paused{false};
  std::atomic<bool> is_asleep{false};
  bool is_shared = true;                   // refuses to abort what is not one caller's
  bool has_unique_rids = false;            // a rid that is running is refused
  bool tells_each_token = true;            // otherwise as often as requests want
  bool ends_twice = false;                 // last updates are told twice
  std::string told_rid;                    // of all updates; "": the request's
  std::chrono::milliseconds step_time{0};  // at least, on a thread
  std::chrono::milliseconds update_time{0};
  std::atomic<double> seconds_without_progress{0};   // what load() says
  DraftCounts drafts;                                // what load() says; set before it is asked
  std::atomic<bool> loses_answers_to_aborts{false};  // it does abort
  std::atomic<int> num_failing_pauses{0};
  std::atomic<int> num_failing_resumes{0};
  std::atomic<int64_t> num_submitted_{0};
  std::function<Expected<void>(const WeightUpdate&)> on_update_weights;  // an error refuses it
  std::function<std::optional<FinishReason>(const GenerateRequest&)> refuses;
  std::function<void(const GenerateRequest&)> on_admitted;  // by the next step; no lock is held
  std::function<void(const GenerateRequest&)> on_sampled;   // when a token is told; the same
  std::vector<GenerateRequest> requests_seen;

 private:
  using Running = std::map<RequestHandle, ScriptedRequest>;
  struct Told {
    OnUpdate on_update;
    GenerateUpdate update;
    std::optional<GenerateRequest> sampled;  // for on_sampled
  };

  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      {
        std::unique_lock lock(mutex_);
        const auto has_work = [&] {
          return std::ranges::any_of(running_, [&](const auto& one) {
            return one.second.is_aborted || !(is_paused || is_asleep);
          });
        };
        // Tests change is_paused without telling.
        if (!changed_.wait_for(lock, stop, std::chrono::milliseconds(1), has_work)) continue;
      }
      step();
      if (is_uneven_ && chance_() % 8 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      std::this_thread::sleep_for(step_time);
    }
  }

  std::optional<FinishReason> refusal_of(const GenerateRequest& request) const {
    if (is_dead_) return aborted(FinishReason::Cause::kEngineLost, "it is dead");
    const bool is_known = std::ranges::any_of(
        running_, [&](const auto& one) { return one.second.request.rid == request.rid; });
    if (has_unique_rids && is_known)
      return aborted(FinishReason::Cause::kBadRequest, "the rid is already running");
    return refuses ? refuses(request) : std::nullopt;
  }

  /// Now, or when it reads again.
  void read(std::function<void()> command) {
    unread_.push_back(std::move(command));
    if (!is_reading_) return;
    for (const auto& each : std::exchange(unread_, {})) each();
    changed_.notify_all();
  }
  void abort_where(std::function<bool(RequestHandle, const ScriptedRequest&)> matches) {
    const std::lock_guard lock(mutex_);
    read([this, matches = std::move(matches)] {
      for (auto& [handle, running] : running_) running.is_aborted |= matches(handle, running);
    });
  }

  /// `ends_all`: what runs has ended when this returns, or does in the next step of the thread.
  template <typename Change>
  Expected<void> order(const Change& change, bool ends_all) {
    {
      const std::lock_guard lock(mutex_);
      if (is_dead_) return failure("dead");
      change();
      for (auto& [handle, running] : running_) running.is_aborted |= ends_all;
      changed_.notify_all();
    }
    if (ends_all && !thread_) end_aborted();
    return {};
  }

  void collect_aborted(std::vector<Told>& told) {
    for (auto at = running_.begin(); at != running_.end();) {
      ScriptedRequest& running = at->second;
      if (running.is_aborted) {
        running.pending.finish = aborted(FinishReason::Cause::kRequested, "aborted");
        told.push_back(take(running));
      }
      at = running.is_aborted ? running_.erase(at) : std::next(at);
    }
  }

  Running::iterator draw(Running::iterator at, std::vector<Told>& told) {
    ScriptedRequest& running = at->second;
    script_(running, version);
    const bool is_last = running.pending.finish.has_value();
    const auto due = static_cast<std::size_t>(running.request.stream_interval);
    const bool is_due = tells_each_token || (due > 0 && running.pending.output_ids.size() >= due);
    if (is_last || is_due) {
      told.push_back(take(running));
      if (on_sampled) told.back().sampled = running.request;
    }
    return is_last ? running_.erase(at) : std::next(at);
  }

  Told take(ScriptedRequest& running) const {
    Told told{running.on_update, std::exchange(running.pending, {}), {}};
    told.update.rid = told_rid.empty() ? running.request.rid : told_rid;
    told.update.prompt_tokens = static_cast<int64_t>(running.request.input_ids.size());
    return told;
  }

  void tell(std::vector<Told> all) const {
    for (Told& told : all) {
      if (ends_twice && told.update.finish) told.on_update(told.update);
      told.on_update(std::move(told.update));
      if (told.sampled) on_sampled(*told.sampled);
    }
  }
  static void tell_end(const GenerateRequest& request, const OnUpdate& on_update,
                       FinishReason why) {
    GenerateUpdate update;
    update.rid = request.rid;
    update.prompt_tokens = static_cast<int64_t>(request.input_ids.size());
    update.finish = std::move(why);
    on_update(std::move(update));
  }

  const Script script_;
  const bool is_uneven_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  // Guarded by mutex_.
  Running running_;
  std::vector<std::function<void()>> unread_;
  bool is_reading_ = true;
  bool is_dead_ = false;
  int64_t num_steps_ = 0;
  std::vector<WeightVersion> update_versions_;
  // Of the stepping thread.
  std::mt19937 chance_{std::random_device{}()};
  std::optional<std::jthread> thread_;  // last: it uses the others
};

}  // namespace slime::engine
