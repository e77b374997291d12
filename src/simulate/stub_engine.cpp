#include "simulate/stub_engine.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace slime::simulate {

using engine::FinishReason;

StubEngine::StubEngine(EventQueue& queue, StubEngineConfig config, LengthFn length_of,
                       uint64_t seed, WeightVersion version)
    : queue_(queue),
      config_(config),
      length_of_(std::move(length_of)),
      chance_(seed),
      version_(version),
      devices_(static_cast<std::size_t>(config.num_devices)) {}

engine::RequestHandle StubEngine::submit(engine::GenerateRequest request, OnUpdate on_update) {
  const auto handle = static_cast<engine::RequestHandle>(++num_submitted_);
  auto made = std::make_unique<Request>();
  made->handle = handle;
  made->rid = std::move(request.rid);
  made->on_update = std::move(on_update);
  made->key = request.sampling.sampling_seed.value();
  made->position = static_cast<int64_t>(request.input_ids.size());
  const int64_t whole = std::max<int64_t>(1, length_of_(made->key) - made->position);
  made->num_left = std::min(whole, request.sampling.max_new_tokens);
  made->is_cut = made->num_left < whole;
  const auto load = [](const Device& device) {
    return device.waiting.size() + device.running.size();
  };
  made->device =
      static_cast<std::size_t>(std::ranges::min_element(devices_, {}, load) - devices_.begin());
  Request& added = *requests_.emplace(handle, std::move(made)).first->second;
  Device& device = devices_[added.device];
  if (device.dead_until > queue_.now()) {
    end(added, {}, engine::aborted(FinishReason::Cause::kQueueFull, "the device is down"));
    return handle;
  }
  device.waiting.push_back(&added);
  if (static_cast<int64_t>(device.running.size()) < config_.max_running) {
    settle(added.device);
    start(added.device);
  }
  return handle;
}

Expected<void> StubEngine::abort(engine::RequestHandle handle) {
  const auto known = requests_.find(handle);
  if (known == requests_.end()) return {};
  const std::size_t device = known->second->device;
  settle(device);
  const auto left = requests_.find(handle);
  if (left != requests_.end()) {
    drop(*left->second);
    end(*left->second, {}, engine::aborted(FinishReason::Cause::kRequested, "aborted"));
  }
  start(device);
  return {};
}

Expected<void> StubEngine::abort_prefix(const std::string& prefix) {
  std::vector<engine::RequestHandle> handles;
  for (const auto& [handle, request] : requests_) {
    if (request->rid.starts_with(prefix)) handles.push_back(handle);
  }
  for (const engine::RequestHandle handle : handles) static_cast<void>(abort(handle));
  return {};
}

Expected<void> StubEngine::pause(engine::PauseMode) {
  for (std::size_t i = 0; i < devices_.size(); ++i) settle(i);
  is_paused_ = true;
  return {};
}

Expected<void> StubEngine::resume() {
  is_paused_ = false;
  for (std::size_t i = 0; i < devices_.size(); ++i) start(i);
  return {};
}

Expected<void> StubEngine::update_weights(const engine::WeightUpdate& update) {
  for (std::size_t i = 0; i < devices_.size(); ++i) settle(i);
  version_ = update.version;
  for (Device& device : devices_) {
    if (update.running == engine::RunningRequests::kAbort) {
      for (Request* request : std::vector<Request*>(device.running)) {
        drop(*request);
        end(*request, {}, engine::aborted(FinishReason::Cause::kRequested, "new weights"));
      }
    } else if (update.running == engine::RunningRequests::kRecompute) {
      for (auto request = device.running.rbegin(); request != device.running.rend(); ++request)
        device.waiting.push_front(*request);
      device.running.clear();
      device.num_cached = 0;
    } else if (update.running == engine::RunningRequests::kDrop) {
      for (Request* request : device.running) device.waiting.push_back(request);
      device.running.clear();
      device.num_cached = 0;
    }
  }
  for (std::size_t i = 0; i < devices_.size(); ++i) start(i);
  return {};
}

Expected<engine::EngineLoad> StubEngine::load() const {
  engine::EngineLoad load;
  for (const Device& device : devices_) {
    load.num_running += static_cast<int64_t>(device.running.size());
    load.num_waiting += static_cast<int64_t>(device.waiting.size());
    load.num_kv_tokens_used += device.num_cached;
  }
  load.is_paused = is_paused_;
  return load;
}

void StubEngine::admit(Device& device) {
  while (!device.waiting.empty() &&
         static_cast<int64_t>(device.running.size()) < config_.max_running) {
    Request* next = device.waiting.front();
    const int64_t needs = cached(*next) + 1;
    if (device.num_cached + needs > config_.kv_tokens && !device.running.empty()) return;
    device.waiting.pop_front();
    device.running.push_back(next);
    device.num_cached += cached(*next);
    device.prefill_seconds += config_.cost.prefill_per_token * static_cast<double>(cached(*next));
  }
}

/// The youngest go back in line, with their tokens, until each can draw one more.
void StubEngine::make_room(Device& device) {
  while (device.running.size() > 1 &&
         device.num_cached + static_cast<int64_t>(device.running.size()) > config_.kv_tokens) {
    Request* last = device.running.back();
    device.running.pop_back();
    device.num_cached -= cached(*last);
    device.waiting.push_front(last);
  }
}

void StubEngine::start(std::size_t index) {
  Device& device = devices_[index];
  if (is_paused_ || device.chunk_steps > 0 || device.dead_until > queue_.now()) return;
  admit(device);
  make_room(device);
  if (device.running.empty()) return;
  const auto num_running = static_cast<int64_t>(device.running.size());
  most_running_ = std::max(most_running_, num_running);
  int64_t steps = config_.max_chunk;
  for (const Request* request : device.running) steps = std::min(steps, request->num_left);
  if (num_running > 1)
    steps = std::min(steps,
                     std::max<int64_t>(1, (config_.kv_tokens - device.num_cached) / num_running));
  device.chunk_steps = steps;
  device.step_seconds = config_.cost.decode_step(num_running, device.num_cached);
  const double prefill = std::exchange(device.prefill_seconds, 0);
  busy_seconds_ += prefill;
  device.chunk_begin = queue_.now() + to_duration(prefill);
  const int64_t chunk = ++device.chunk;
  queue_.after(prefill + device.step_seconds * static_cast<double>(steps),
               [this, index, chunk] { end_chunk(index, chunk); });
}

void StubEngine::end_chunk(std::size_t index, int64_t chunk) {
  Device& device = devices_[index];
  if (device.chunk != chunk || device.chunk_steps == 0) return;
  draw(device, std::exchange(device.chunk_steps, 0));
  if (chance_.happens(config_.faults.death)) die(index);
  if (chance_.happens(config_.faults.fatal)) {
    for (Request* request : std::vector<Request*>(device.running)) {
      drop(*request);
      end(*request, {}, engine::aborted(FinishReason::Cause::kEngineFailed, "the step failed"));
    }
  }
  start(index);
}

/// Whole steps count; what is begun of the next is lost.
void StubEngine::settle(std::size_t index) {
  Device& device = devices_[index];
  if (device.chunk_steps == 0) return;
  const int64_t steps = std::exchange(device.chunk_steps, 0);
  ++device.chunk;
  const double elapsed = seconds_between(device.chunk_begin, queue_.now());
  if (elapsed < 0) {  // prompts are being read
    device.prefill_seconds = -elapsed;
    busy_seconds_ += elapsed;
    return;
  }
  draw(device, std::min(steps, static_cast<int64_t>(elapsed / device.step_seconds + 1e-6)));
}

void StubEngine::draw(Device& device, int64_t num_steps) {
  busy_seconds_ += device.step_seconds * static_cast<double>(num_steps);
  if (num_steps == 0) return;
  for (Request* request : std::vector<Request*>(device.running)) {
    engine::GenerateUpdate update;
    for (int64_t i = 0; i < num_steps; ++i) {
      update.output_ids.push_back(token_at(request->key, request->position++));
      update.output_log_probs.push_back(log_prob_of(version_));
    }
    update.versions = {{version_, num_steps}};
    device.num_cached += num_steps;
    num_sampled_ += num_steps;
    request->num_left -= num_steps;
    if (request->num_left > 0) {
      request->on_update(std::move(update));
      continue;
    }
    drop(*request);
    end(*request, std::move(update),
        {.kind = request->is_cut ? FinishReason::Kind::kLength : FinishReason::Kind::kStop});
  }
}

void StubEngine::die(std::size_t index) {
  Device& device = devices_[index];
  device.dead_until = queue_.now() + to_duration(config_.faults.dead_for);
  std::vector<Request*> all(device.running);
  all.insert(all.end(), device.waiting.begin(), device.waiting.end());
  for (Request* request : all) {
    drop(*request);
    end(*request, {}, engine::aborted(FinishReason::Cause::kShuttingDown, "the device died"));
  }
  queue_.after(config_.faults.dead_for + 1e-6, [this, index] { start(index); });
}

/// It leaves its device.
void StubEngine::drop(Request& request) {
  Device& device = devices_[request.device];
  if (std::erase(device.running, &request) > 0) device.num_cached -= cached(request);
  std::erase(device.waiting, &request);
}

void StubEngine::end(Request& request, engine::GenerateUpdate update, FinishReason finish) {
  update.rid = request.rid;
  update.finish = std::move(finish);
  const OnUpdate on_update = std::move(request.on_update);
  requests_.erase(request.handle);
  const double delay =
      chance_.happens(config_.faults.late) ? chance_.uniform(0, config_.faults.latest) : 0;
  if (chance_.happens(config_.faults.duplicate))
    queue_.after(delay + chance_.uniform(0, config_.faults.latest),
                 [on_update, update] { on_update(update); });
  queue_.after(delay,
               [on_update, update = std::move(update)]() mutable { on_update(std::move(update)); });
}

}  // namespace slime::simulate
