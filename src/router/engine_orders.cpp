// What all engines of a router do together: pause, sleep, new weights; and how they come and go.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <mutex>
#include <utility>

#include "router/router.h"

namespace slime::router {

using engine::EngineClient;

bool Router::inside(EngineId id, const std::function<void(EngineClient&)>& call) const {
  EngineClient* engine = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = places_.find(id);
    if (found == places_.end()) return false;
    ++found->second.num_inside;
    engine = found->second.engine;
  }
  call(*engine);
  const std::lock_guard lock(mutex_);
  if (--places_.at(id).num_inside == 0) left_.notify_all();
  return true;
}

Expected<EngineId> Router::join(EngineClient& engine) {
  const std::lock_guard control(control_mutex_);
  if (is_paused_) {
    const Expected<void> paused = engine.pause(engine::PauseMode::kInPlace);
    if (!paused) return tl::make_unexpected(paused.error());
  }
  if (is_asleep_) {
    const Expected<void> asleep = engine.sleep();
    if (!asleep) return tl::make_unexpected(asleep.error());
  }
  std::unique_lock lock(mutex_);
  const auto id = static_cast<EngineId>(++num_joined_);
  const WeightVersion version = engine.weight_version();
  if (!version_) version_ = version;
  places_.emplace(id, Place{.engine = &engine, .version = version});
  lock.unlock();
  dispatch_waiting();
  lock.lock();
  const std::vector<Abort> aborts = moves_to(id);
  lock.unlock();
  abort_there(aborts);
  return id;
}

void Router::leave(EngineId id) {
  std::unique_lock lock(mutex_);
  const auto found = places_.find(id);
  if (found == places_.end()) return;
  found->second.is_leaving = true;
  std::vector<Abort> aborts;
  for (auto& [handle, request] : requests_) {
    if (request.stay.engine != id || !request.stay.handle)
      continue;  // else whoever sends it there looks
    request.stay.is_moving = true;
    aborts.push_back({id, *request.stay.handle});
  }
  lock.unlock();
  abort_there(aborts);
  lock.lock();
  left_.wait(lock, [&] {
    const Place& place = places_.at(id);
    return place.num_open == 0 && place.num_inside == 0;
  });
  places_.erase(id);
  prefixes_.forget(id);
}

Expected<void> Router::order_all(const Order& order) {
  std::vector<EngineId> ids;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, place] : places_)
      if (!place.is_lost && !place.is_leaving) ids.push_back(id);
  }
  const auto carry_out = [&](EngineId id) -> Expected<void> {
    Expected<void> done;
    bool is_lost = false;
    inside(id, [&](EngineClient& engine) {
      done = order(id, engine);
      is_lost = !done && !engine.load();  // it cannot be reached at all
    });
    if (!is_lost) return done;
    std::unique_lock lock(mutex_);
    const auto found = places_.find(id);
    const bool is_news = found != places_.end() && !std::exchange(found->second.is_lost, true);
    lock.unlock();
    if (is_news && on_lost_) on_lost_(id);
    return {};
  };
  if (ids.size() == 1) return carry_out(ids.front());
  std::vector<std::future<Expected<void>>> under_way;
  for (const EngineId id : ids) under_way.push_back(std::async(std::launch::async, carry_out, id));
  Expected<void> first;
  for (auto& done : under_way) {
    Expected<void> result = done.get();
    if (!result && first) first = std::move(result);
  }
  return first;
}

/// What ends now because it was asked for does not go on elsewhere.
void Router::end_all_on_request() {
  std::vector<Requests::node_type> nowhere;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [handle, request] : requests_) request.is_aborted = true;
    for (const engine::RequestHandle handle : std::exchange(waiting_, {}))
      nowhere.push_back(extract(handle));
  }
  for (auto& request : nowhere) {
    end(std::move(request),
        engine::aborted(engine::FinishReason::Cause::kRequested, "aborted with all requests"));
  }
}

Expected<void> Router::pause(engine::PauseMode mode) {
  const std::lock_guard control(control_mutex_);
  if (mode == engine::PauseMode::kAbort) end_all_on_request();
  is_paused_ = true;
  return order_all([mode](EngineId, EngineClient& engine) { return engine.pause(mode); });
}

Expected<void> Router::resume() {
  const std::lock_guard control(control_mutex_);
  is_paused_ = false;
  return order_all([](EngineId, EngineClient& engine) { return engine.resume(); });
}

Expected<void> Router::sleep() {
  const std::lock_guard control(control_mutex_);
  is_asleep_ = true;
  return order_all([](EngineId, EngineClient& engine) { return engine.sleep(); });
}

Expected<void> Router::wake() {
  const std::lock_guard control(control_mutex_);
  is_asleep_ = false;
  return order_all([](EngineId, EngineClient& engine) { return engine.wake(); });
}

Expected<bool> Router::flush_cache() {
  const std::lock_guard control(control_mutex_);
  std::atomic<bool> all_flushed{true};
  const Expected<void> done = order_all([&](EngineId, EngineClient& engine) -> Expected<void> {
    const Expected<bool> flushed = engine.flush_cache();
    if (!flushed) return tl::make_unexpected(flushed.error());
    if (!*flushed) all_flushed = false;
    return {};
  });
  if (!done) return tl::make_unexpected(done.error());
  const std::lock_guard lock(mutex_);
  if (all_flushed) prefixes_.clear();
  return all_flushed.load();
}

Expected<void> Router::update_weights(const engine::WeightUpdate& update) {
  const std::lock_guard control(control_mutex_);
  if (update.running == engine::RunningRequests::kAbort) end_all_on_request();
  std::atomic<int> num_updated{0};
  Expected<void> done = order_all([&](EngineId id, EngineClient& engine) {
    Expected<void> updated = engine.update_weights(update);
    const std::lock_guard lock(mutex_);
    Place& place = places_.at(id);
    place.has_missed_update = !updated;
    if (updated) {
      ++num_updated;
      place.version = update.version;
    }
    return updated;
  });
  if (!done && num_updated == 0) return done;
  if (update.stays_paused) is_paused_ = true;
  {
    const std::lock_guard lock(mutex_);
    version_ = update.version;
    prefixes_.clear();
  }
  dispatch_waiting();
  return done;
}

Expected<WeightChecksums> Router::check_weights(engine::WeightCheck check) {
  const std::lock_guard control(control_mutex_);
  std::map<EngineId, WeightChecksums> checksums;
  std::mutex checksums_mutex;
  const Expected<void> done = order_all([&](EngineId id, EngineClient& engine) -> Expected<void> {
    Expected<WeightChecksums> checked = engine.check_weights(check);
    if (!checked) return tl::make_unexpected(checked.error());
    const std::lock_guard lock(checksums_mutex);
    checksums[id] = std::move(*checked);
    return {};
  });
  if (!done) return tl::make_unexpected(done.error());
  if (checksums.empty()) return failure("there is no engine whose weights could be looked at");
  const auto& [first_id, first] = *checksums.begin();
  for (const auto& [id, others] : checksums) {
    const std::vector<std::string> different = differing_tensors(first, others);
    if (different.empty()) continue;
    return failure(fmt::format(
        "the engine that joined as number {} has other weights than number {}: {}",
        static_cast<int64_t>(id), static_cast<int64_t>(first_id), list_of_tensors(different)));
  }
  return first;
}

Expected<engine::EngineLoad> Router::load() const {
  engine::EngineLoad sum;
  sum.is_paused = is_paused_;
  sum.num_waiting = num_waiting();
  for (const EngineView& view : engines()) {
    inside(view.id, [&sum](EngineClient& engine) {
      const Expected<engine::EngineLoad> load = engine.load();
      if (!load) return;  // its requests go on elsewhere, and are counted there
      sum.num_running += load->num_running;
      sum.num_waiting += load->num_waiting;
      sum.num_kv_tokens_used += load->num_kv_tokens_used;
      sum.num_kv_tokens += load->num_kv_tokens;
      sum.num_kv_tokens_given_back += load->num_kv_tokens_given_back;
      sum.steps_done += load->steps_done;
      sum.seconds_since_step = std::max(sum.seconds_since_step, load->seconds_since_step);
      sum.seconds_without_progress =
          std::max(sum.seconds_without_progress, load->seconds_without_progress);
      sum.decode_tokens_per_second += load->decode_tokens_per_second;
      add(load->grammars, sum.grammars);
      sum.drafts += load->drafts;
    });
  }
  return sum;
}

}  // namespace slime::router
