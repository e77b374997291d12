#include "rollout/round_engine.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/request_parts.h"

namespace slime::rollout {

namespace {

/// What the requests of a round have sampled: the engine's thread adds, run_round() waits.
class Arrivals {
 public:
  explicit Arrivals(std::size_t count) : updates_(count), num_missing_(count) {}

  void add(std::size_t index, engine::GenerateUpdate update) {
    const std::lock_guard lock(mutex_);
    if (updates_[index].finish) return;  // its client tells the end twice
    num_missing_ -= update.finish ? 1 : 0;
    merge(updates_[index], std::move(update));
    if (num_missing_ == 0) all_here_.notify_one();
  }
  bool are_here_within(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    return all_here_.wait_for(lock, limit, [this] { return num_missing_ == 0; });
  }
  /// When all are here.
  std::vector<engine::GenerateUpdate> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(updates_, std::vector<engine::GenerateUpdate>(updates_.size()));
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_here_;
  std::vector<engine::GenerateUpdate> updates_;  // guarded by mutex_
  std::size_t num_missing_;                      // guarded by mutex_
};

engine::FinishReason aborted_by_caller() {
  return engine::aborted(engine::FinishReason::Cause::kRequested, "aborted by the caller");
}

}  // namespace

engine::RequestHandle RoundEngine::submit(engine::GenerateRequest request, OnUpdate on_update) {
  const auto handle = static_cast<engine::RequestHandle>(++num_submitted_);
  const auto prompt_tokens = static_cast<int64_t>(request.input_ids.size());
  open_.emplace(handle, Open{.rest = std::move(request),
                             .on_update = std::move(on_update),
                             .prompt_tokens = prompt_tokens});
  return handle;
}

Expected<void> RoundEngine::abort(engine::RequestHandle request) {
  const auto found = open_.find(request);
  if (found == open_.end()) return {};
  found->second.is_aborted = true;
  if (found->second.in_engine) return engine_.abort(*found->second.in_engine);
  engine::GenerateUpdate update;
  update.finish = aborted_by_caller();
  tell(request, std::move(update));
  return {};
}

Expected<void> RoundEngine::abort_prefix(const std::string& prefix) {
  std::vector<engine::RequestHandle> meant;
  for (const auto& [handle, open] : open_) {
    if (open.rest.rid.starts_with(prefix)) meant.push_back(handle);
  }
  Expected<void> first;
  for (const engine::RequestHandle handle : meant) {
    Expected<void> done = abort(handle);
    if (!done && first) first = std::move(done);
  }
  return first;
}

engine::GenerateRequest RoundEngine::next_part(const Open& open) const {
  engine::GenerateRequest part = open.rest;
  part.sampling.max_new_tokens = std::min(part.sampling.max_new_tokens, tokens_per_round_);
  part.stream_interval = 0;
  return part;
}

void RoundEngine::run_round(const std::function<void()>& look) {
  if (open_.empty()) return;
  std::vector<engine::RequestHandle> drawing;
  drawing.reserve(open_.size());
  for (const auto& [handle, open] : open_) drawing.push_back(handle);
  const auto arrivals = std::make_shared<Arrivals>(drawing.size());
  engine::or_throw(engine_.pause(engine::PauseMode::kInPlace));
  for (std::size_t i = 0; i < drawing.size(); ++i) {
    Open& open = open_.at(drawing[i]);
    open.in_engine = engine_.submit(next_part(open), [arrivals, i](engine::GenerateUpdate update) {
      arrivals->add(i, std::move(update));
    });
  }
  engine::or_throw(engine_.resume());
  while (!arrivals->are_here_within(kLookInterval)) look();
  std::vector<engine::GenerateUpdate> updates = arrivals->take();
  for (const engine::RequestHandle handle : drawing) open_.at(handle).in_engine.reset();
  for (std::size_t i = 0; i < drawing.size(); ++i) tell(drawing[i], std::move(updates[i]));
}

void RoundEngine::tell(engine::RequestHandle handle, engine::GenerateUpdate update) {
  const auto found = open_.find(handle);
  Open& open = found->second;
  const auto num_sampled = static_cast<int64_t>(update.output_ids.size());
  const int64_t& num_left = open.rest.sampling.max_new_tokens;
  const bool is_whole_part = num_sampled == std::min(num_left, tokens_per_round_);
  engine::advance(open.rest, update.output_ids);
  if (update.finish->kind == engine::FinishReason::Kind::kLength && is_whole_part && num_left > 0) {
    update.finish.reset();
    if (open.is_aborted) update.finish = aborted_by_caller();
  }
  update.rid = open.rest.rid;
  update.prompt_tokens = open.prompt_tokens;
  const OnUpdate on_update = open.on_update;
  if (update.finish) open_.erase(found);
  on_update(std::move(update));
}

}  // namespace slime::rollout
