#include "tinker/adapter_sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "core/error.h"

namespace slime::tinker {
namespace {

/// Adapters in the engine.
constexpr int64_t kMostLoaded = 16;

}  // namespace

AdapterSampler::AdapterSampler(std::unique_ptr<model::Network> base, engine::EngineConfig config,
                               const Clock& clock)
    : base_(std::move(base)), adapters_(*base_, kMostLoaded) {
  config.adapters = &adapters_;
  engine_ = std::make_unique<engine::Engine>(*base_, config, clock);
  adapters_.change_with(*engine_);
  thread_ = std::jthread([this](const std::stop_token& stop) { begin_requests(stop); });
}

AdapterSampler::~AdapterSampler() {
  thread_.request_stop();
  thread_.join();
  engine_.reset();  // ends what runs, whose callbacks lock the mutex
}

void AdapterSampler::sample(SharedSnapshot snapshot, engine::GenerateRequest request,
                            engine::EngineClient::OnUpdate on_update) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back({std::move(snapshot), std::move(request), std::move(on_update)});
  changed_.notify_all();
}

void AdapterSampler::stand_still(const std::function<void()>& body) {
  const std::lock_guard lock(stands_still_);
  engine::or_throw(engine_->pause(engine::PauseMode::kInPlace));
  std::exception_ptr error;
  try {
    body();
  } catch (...) {
    error = std::current_exception();
  }
  engine::or_throw(engine_->resume());
  if (error) std::rethrow_exception(error);
}

AdapterSampler::Known::iterator AdapterSampler::idle() {
  auto oldest = loaded_.end();
  for (auto each = loaded_.begin(); each != loaded_.end(); ++each) {
    if (each->second.num_running > 0) continue;
    if (each->second.snapshot.expired()) return each;
    if (oldest == loaded_.end() || each->second.last_use < oldest->second.last_use) oldest = each;
  }
  return oldest;
}

bool AdapterSampler::may_begin() {
  if (waiting_.empty()) return false;
  const SharedSnapshot& snapshot = waiting_.front().snapshot;
  return snapshot->adapter == nullptr || loaded_.contains(snapshot.get()) ||
         static_cast<int64_t>(loaded_.size()) < kMostLoaded || idle() != loaded_.end();
}

void AdapterSampler::begin_requests(const std::stop_token& stop) {
  while (true) {
    std::optional<Waiting> next;
    std::string name, leaves;
    bool is_new = false;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return may_begin(); })) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
      const Snapshot* snapshot = next->snapshot.get();
      if (snapshot->adapter != nullptr) {
        auto known = loaded_.find(snapshot);
        // The same address may be another snapshot's by now.
        if (known != loaded_.end() && known->second.snapshot.expired()) {
          leaves = known->second.name;
          loaded_.erase(known);
          known = loaded_.end();
        }
        is_new = known == loaded_.end();
        if (is_new && leaves.empty() && static_cast<int64_t>(loaded_.size()) >= kMostLoaded) {
          const auto oldest = idle();
          leaves = oldest->second.name;
          loaded_.erase(oldest);
        }
        if (is_new)
          known = loaded_
                      .emplace(snapshot, Loaded{.name = fmt::format("snapshot-{}", ++num_loads_),
                                                .snapshot = next->snapshot})
                      .first;
        ++known->second.num_running;
        known->second.last_use = ++num_uses_;
        name = known->second.name;
      }
    }
    if (!leaves.empty()) (void)adapters_.unload(leaves);
    std::string problem;
    if (is_new) {
      const auto put = adapters_.put(name, next->snapshot->adapter);
      if (!put) problem = put.error().message;
    }
    if (problem.empty()) {
      submit(*std::move(next), name);
      continue;
    }
    {
      const std::lock_guard lock(mutex_);
      loaded_.erase(next->snapshot.get());
    }
    engine::GenerateUpdate failed;
    failed.finish = engine::aborted(engine::FinishReason::Cause::kEngineFailed, problem);
    next->on_update(std::move(failed));
  }
}

void AdapterSampler::submit(Waiting waiting, const std::string& adapter) {
  waiting.request.adapter = adapter;
  engine_->submit(std::move(waiting.request),
                  [this, snapshot = std::move(waiting.snapshot),
                   on_update = std::move(waiting.on_update)](engine::GenerateUpdate update) {
                    const bool is_last = update.finish.has_value();
                    on_update(std::move(update));
                    if (is_last) ended(snapshot.get());
                  });
}

void AdapterSampler::ended(const Snapshot* snapshot) {
  const std::lock_guard lock(mutex_);
  const auto known = loaded_.find(snapshot);
  if (known != loaded_.end()) --known->second.num_running;
  changed_.notify_all();
}

}  // namespace slime::tinker
