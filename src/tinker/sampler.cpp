#include "tinker/sampler.h"

#include <exception>
#include <utility>

#include "core/error.h"

namespace slime::tinker {

Sampler::Sampler(SharedSnapshot first, const engine::EngineConfig& config, const Clock& clock)
    : current_(std::move(first)),
      engine_(std::make_unique<engine::Engine>(*current_->network, config, clock)),
      thread_([this](const std::stop_token& stop) { begin_requests(stop); }) {}

Sampler::~Sampler() {
  thread_.request_stop();
  thread_.join();
  engine_.reset();  // ends what runs, whose callbacks lock the mutex
}

void Sampler::sample(SharedSnapshot snapshot, engine::GenerateRequest request,
                     engine::EngineClient::OnUpdate on_update) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back({std::move(snapshot), std::move(request), std::move(on_update)});
  changed_.notify_all();
}

void Sampler::stand_still(const std::function<void()>& body) {
  const std::lock_guard lock(engine_in_use_);
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

void Sampler::begin_requests(const std::stop_token& stop) {
  while (true) {
    std::optional<Waiting> next;
    {
      std::unique_lock lock(mutex_);
      const auto may_begin = [this] {
        return !waiting_.empty() && (waiting_.front().snapshot == current_ || num_running_ == 0);
      };
      if (!changed_.wait(lock, stop, may_begin)) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
      ++num_running_;
    }
    submit(*std::move(next));
  }
}

void Sampler::submit(Waiting waiting) {
  if (waiting.snapshot != current_) {
    try {
      switch_to(waiting.snapshot);
    } catch (const std::exception& error) {
      engine::GenerateUpdate failed;
      failed.finish = engine::aborted(engine::FinishReason::Cause::kEngineFailed, error.what());
      waiting.on_update(std::move(failed));
      const std::lock_guard lock(mutex_);
      --num_running_;
      return;
    }
  }
  engine_->submit(std::move(waiting.request),
                  [this, on_update = std::move(waiting.on_update)](engine::GenerateUpdate update) {
                    const bool is_last = update.finish.has_value();
                    on_update(std::move(update));
                    if (!is_last) return;
                    const std::lock_guard lock(mutex_);
                    --num_running_;
                    changed_.notify_all();
                  });
}

void Sampler::switch_to(const SharedSnapshot& snapshot) {
  const std::lock_guard lock(engine_in_use_);
  engine::or_throw(engine_->update_weights(
      {.version = ++num_switches_, .source = engine::Exchange{snapshot->network.get()}}));
  current_ = snapshot;
}

}  // namespace slime::tinker
