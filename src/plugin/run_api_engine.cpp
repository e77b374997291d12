#include "plugin/run_api_engine.h"

#include <utility>
#include <vector>

namespace slime::plugin {

engine::RequestHandle RunApiEngine::submit(engine::GenerateRequest request, OnUpdate on_update) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(open_->mutex);
    number = open_->next++;
    open_->requests[number].rid = request.rid;
  }
  const auto watched = [open = open_, number,
                        tell = std::move(on_update)](engine::GenerateUpdate update) {
    open->num_sampled_tokens += static_cast<int64_t>(update.output_ids.size());
    if (update.finish) {
      const std::lock_guard lock(open->mutex);
      open->requests.erase(number);
    }
    tell(std::move(update));
  };
  const engine::RequestHandle handle = engine_.load()->submit(std::move(request), watched);
  {
    const std::lock_guard lock(open_->mutex);
    const auto found = open_->requests.find(number);
    if (found == open_->requests.end()) return handle;
    found->second.handle = handle;
  }
  // Looked at behind the handle's entry: set_aborting() finds this request, or this finds it set.
  if (is_aborting_) static_cast<void>(engine_.load()->abort(handle));
  return handle;
}

void RunApiEngine::set_aborting(bool is_aborting) {
  is_aborting_ = is_aborting;
  if (is_aborting && engine_.load() != nullptr) static_cast<void>(abort_all());
}

Expected<void> RunApiEngine::abort_prefix(const std::string& prefix) {
  std::vector<engine::RequestHandle> handles;
  {
    const std::lock_guard lock(open_->mutex);
    for (const auto& [number, request] : open_->requests) {
      if (request.handle && request.rid.starts_with(prefix)) handles.push_back(*request.handle);
    }
  }
  Expected<void> first;
  for (const engine::RequestHandle handle : handles) {
    Expected<void> aborted = engine_.load()->abort(handle);
    if (!aborted && first) first = std::move(aborted);
  }
  return first;
}

}  // namespace slime::plugin
