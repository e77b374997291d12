#include "engine/engine.h"

#include <ATen/core/grad_mode.h>

#include <optional>
#include <utility>

#include "core/error.h"
#include "engine/error_text.h"
#include "kernels/cpu/thread_pool.h"

namespace slime::engine {
namespace {

using Cause = FinishReason::Cause;

constexpr const char* kShuttingDown = "the engine is shutting down";
constexpr const char* kPaused = "aborted by pause_generation";

}  // namespace

Engine::Engine(model::Network& network, const EngineConfig& config, const Clock& clock,
               const MakeStepRunner& make_runner)
    : clock_(clock),
      config_(completed(config, network)),
      weights_(network, *config_.mesh, config_.stages_weights),
      progress_(clock, config_.on_activity),
      steps_(network, config_, clock, progress_, make_runner),
      commands_(
          static_cast<std::size_t>(config_.max_queued_requests + config_.max_running_requests)),
      awaiting_constraints_(std::make_shared<ConstraintQueue>(
          static_cast<std::size_t>(config_.max_queued_requests), [this](RequestHandle request) {
            Command ready(Ready{request});
            return commands_.try_push(ready);
          })) {
  thread_ = std::thread([this] { run(); });
}

Engine::~Engine() {
  stopping_ = true;
  awaiting_constraints_->close(aborted(Cause::kShuttingDown, kShuttingDown));
  commands_.close();
  thread_.join();
}

RequestHandle Engine::submit(GenerateRequest request, OnUpdate on_update) {
  const auto handle = static_cast<RequestHandle>(++num_handles_);
  Submission submission{handle, std::move(request), std::move(on_update), clock_.now()};
  const auto turn_away = [this](const Submission& refused) {
    refuse(refused,
           stopping_ ? aborted(Cause::kShuttingDown, kShuttingDown) : queue_is_full(config_));
  };
  if (config_.constraints && config_.constraints->constrains(submission.request)) {
    if (!awaiting_constraints_->add(submission, *config_.constraints)) turn_away(submission);
    return handle;
  }
  Command command(std::move(submission));
  if (!commands_.try_push(command)) turn_away(std::get<Submission>(command));
  return handle;
}

Expected<void> Engine::send(Abort abort) {
  if (is_own_thread()) {
    made_by_callbacks_.emplace_back([this, abort = std::move(abort)] { handle(abort); });
  } else if (!commands_.push(std::move(abort))) {
    return failure(kShuttingDown);
  }
  return {};
}

Expected<void> Engine::abort(RequestHandle request) { return send(request); }
Expected<void> Engine::abort_prefix(const std::string& prefix) { return send(prefix); }
Expected<void> Engine::abort_all() { return send(All{}); }

bool Engine::run_exclusive(std::function<void()> body) {
  return run_on_thread(std::move(body), /*drains_first=*/true);
}

bool Engine::run_beside_steps(const std::function<void()>& body) {
  if (stopping_) return false;
  steps_.beside_steps(body);
  return true;
}

bool Engine::run_on_thread(std::function<void()> body, bool drains_first) {
  if (is_own_thread()) {
    made_by_callbacks_.push_back(std::move(body));
    return true;
  }
  auto done = std::make_shared<std::promise<void>>();
  auto future = done->get_future();
  if (!commands_.push(Call{std::move(body), std::move(done), drains_first})) return false;
  future.get();
  return true;
}

Expected<void> Engine::control(std::function<void()> body, bool drains_first) {
  try {
    if (!run_on_thread(std::move(body), drains_first)) return failure(kShuttingDown);
    return {};
  } catch (const BugError&) {
    throw;
  } catch (const std::exception& error) {
    return failure(text_of(error));
  }
}

Expected<void> Engine::pause(PauseMode mode) {
  return control([this, mode] {
    if (mode == PauseMode::kAbort) {
      awaiting_constraints_->end_if([](const Submission&) { return true; },
                                    aborted(Cause::kRequested, kPaused));
    }
    steps_.pause(mode);
  });
}

Expected<void> Engine::resume() {
  return control([this] { steps_.resume(); });
}

Expected<bool> Engine::flush_cache() {
  auto flushed = std::make_shared<bool>(false);
  const Expected<void> done = control([this, flushed] { *flushed = steps_.flush_cache(); });
  if (!done) return tl::make_unexpected(done.error());
  if (*flushed && config_.constraints) config_.constraints->clear_cache();
  return *flushed;
}

Expected<void> Engine::sleep() {
  return control([this] { steps_.sleep(); });
}

Expected<void> Engine::wake() {
  return control([this] { steps_.wake(); });
}

Expected<void> Engine::update_weights(const WeightUpdate& update) {
  std::shared_ptr<model::Network> loaded_network;  // until it is copied
  model::Network* fresh = nullptr;
  const auto* some = std::get_if<FromTensors>(&update.source);
  if (some == nullptr) weights_.note_copy(-1);
  if (const auto* directory = std::get_if<FromDirectory>(&update.source)) {
    auto loaded = weights_.load(directory->path);
    if (!loaded) return tl::make_unexpected(loaded.error());
    const Expected<void> elsewhere = steps_.load_elsewhere(directory->path);
    if (!elsewhere) return tl::make_unexpected(elsewhere.error());
    loaded_network = std::move(*loaded);
    fresh = loaded_network.get();
  }
  const bool is_alone = config_.mesh->tp().is_alone();
  if (const auto* other = std::get_if<FromNetwork>(&update.source)) {
    if (!is_alone)
      return failure("an engine of several ranks takes weights of a directory, or tensors");
    fresh = other->network;
  }
  if (some != nullptr) {
    if (!is_alone && weights_.running().has_formats())
      return failure("ranks that store codes take weights of a directory, not tensors");
    steps_.wait_for_weights();
    auto changed = weights_.with(*some->update);
    if (!changed) return tl::make_unexpected(changed.error());
    const Expected<void> elsewhere =
        steps_.change_elsewhere(*some->update, changed->network->weights(), changed->begins);
    if (!elsewhere) return tl::make_unexpected(elsewhere.error());
    loaded_network = std::move(changed->network);
    fresh = loaded_network.get();
  }
  const auto* exchange = std::get_if<Exchange>(&update.source);
  model::Network* other = exchange == nullptr ? nullptr : exchange->network;
  FreshWeights copied;
  if (fresh != nullptr) {
    steps_.wait_for_weights();  // the copy before may still read the second buffer
    Expected<FreshWeights> staged = weights_.stage(*fresh);
    if (!staged) return tl::make_unexpected(staged.error());
    copied = std::move(*staged);
  }
  const Expected<void> done = control(
      [this, copied, other, version = update.version, running = update.running,
       stays_paused = update.stays_paused] {
        steps_.change_weights(copied, other, running, version, stays_paused);
        weights_.set_version(version);
        if (other != nullptr) weights_.compute_with(*other);
      },
      /*drains_first=*/false);
  if ((copied.defined() && !weights_.stages()) || other != nullptr) steps_.wait_for_weights();
  weights_.note_copy(done && some != nullptr ? update.version : -1);
  return done;
}

Expected<WeightChecksums> Engine::check_weights(WeightCheck check) {
  auto checked = std::make_shared<Expected<WeightChecksums>>();
  const Expected<void> done = control([this, checked, check] {
    const bool resets = check == WeightCheck::kReset;
    *checked = weights_.check(check, steps_.checksums_of(weights_.changing(), resets));
    if (!resets) return;
    weights_.note_copy(-1);
    steps_.change_weights({}, nullptr, RunningRequests::kRecompute, weights_.version(),
                          /*stays_paused=*/false);
  });
  if (!done) return tl::make_unexpected(done.error());
  return *checked;
}

Expected<WeightRows> Engine::read_weight(const std::string& name, int64_t most_rows) {
  auto rows = std::make_shared<Expected<WeightRows>>();
  const Expected<void> done =
      control([this, rows, name, most_rows] { *rows = weights_.rows_of(name, most_rows); });
  if (!done) return tl::make_unexpected(done.error());
  return *rows;
}

Expected<EngineLoad> Engine::load() const {
  EngineLoad load = progress_.load();
  load.num_waiting += static_cast<int64_t>(commands_.size()) + awaiting_constraints_->size();
  if (config_.constraints) load.grammars = config_.constraints->load();
  return load;
}

void Engine::run() {
  const at::NoGradGuard no_grad;
  std::optional<kernels::cpu::OwnThreads> own_threads;
  if (config_.num_threads > 0) own_threads.emplace(static_cast<int>(config_.num_threads));
  while (!stopping_) {
    const bool is_busy = steps_.has_work();
    auto command = is_busy ? commands_.try_pop() : commands_.pop();
    if (!command.has_value() && !is_busy) break;  // closed
    if (command.has_value()) {
      for (; command.has_value(); command = commands_.try_pop()) handle(std::move(*command));
      steps_.report();
    }
    try {
      steps_.step();
      if (!made_by_callbacks_.empty()) steps_.drain();
    } catch (const std::exception& error) {
      steps_.fail_all(error);
    }
    run_made_by_callbacks();
  }
  steps_.forget_launched();
  while (auto command = commands_.try_pop()) handle(std::move(*command));
  steps_.finish_all(aborted(Cause::kShuttingDown, kShuttingDown));
}

/// Nobody waits for their outcome, so what fails there fails the requests.
void Engine::run_made_by_callbacks() {
  for (const auto& body : std::exchange(made_by_callbacks_, {})) {
    try {
      body();
    } catch (const std::exception& error) {
      steps_.fail_all(error);
    }
  }
}

void Engine::handle(Command command) {
  if (auto* submission = std::get_if<Submission>(&command))
    return steps_.admit(std::move(*submission));
  if (const auto* ready = std::get_if<Ready>(&command)) {
    if (auto submission = awaiting_constraints_->take(ready->request))
      steps_.admit(std::move(*submission));
    return;
  }
  auto* call = std::get_if<Call>(&command);
  // Who calls sees the engine between two steps.
  if (call == nullptr || call->drains_first) steps_.drain_or_fail();
  if (call != nullptr) {
    try {
      call->body();
      steps_.report();  // whoever waits may look at it next
      call->done->set_value();
    } catch (...) {
      call->done->set_exception(std::current_exception());
    }
    return;
  }
  const Abort& abort = std::get<Abort>(command);
  const auto* handle = std::get_if<RequestHandle>(&abort);
  const auto* prefix = std::get_if<std::string>(&abort);
  const auto matches = [&](RequestHandle request, const std::string& rid) {
    if (handle != nullptr) return request == *handle;
    return prefix == nullptr || rid.starts_with(*prefix);
  };
  const FinishReason reason = aborted(Cause::kRequested, "aborted by the caller");
  awaiting_constraints_->end_if(
      [&](const Submission& waiting) { return matches(waiting.handle, waiting.request.rid); },
      reason);
  steps_.finish_if(
      [&](const Request& request) { return matches(request.handle, request.client.rid); }, reason);
}

}  // namespace slime::engine
