#include "engine/http/running_call.h"

#include <utility>

namespace slime::engine {

RunningCall::RunningCall(EngineClient& engine, net::HttpExchange& exchange, ResponseMemory& memory,
                         const ResponseCost& cost, std::vector<GenerateRequest> requests,
                         RequestMetrics* metrics)
    : engine_(engine),
      exchange_(exchange),
      inbox_(std::make_shared<UpdateInbox>(exchange.executor(), memory, cost)),
      unfinished_(std::make_shared<Unfinished>(requests.size())),
      num_unfinished_(requests.size()),
      metrics_(metrics),
      measured_(requests.size()) {
  if (!inbox_->reserve(prompt_bytes(requests))) return;  // nothing is submitted, nothing to abort
  const auto abort_all = [&engine = engine_, unfinished = unfinished_] {
    unfinished->abort_all(engine);
  };
  inbox_->on_overrun(abort_all);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const RequestHandle handle =
        engine_.submit(std::move(requests[i]),
                       [inbox = inbox_, unfinished = unfinished_, i](GenerateUpdate update) {
                         if (update.finish) unfinished->finish(i);
                         inbox->push(i, std::move(update));
                       });
    unfinished_->submitted(i, handle);
  }
  // Each aborted request still ends with an update, so the coroutine wakes and sees that nobody
  // listens.
  exchange_.on_disconnect(abort_all);
}

RunningCall::~RunningCall() {
  exchange_.on_disconnect([] {});
  inbox_->close();
  unfinished_->abort_all(engine_);
}

net::Task<std::vector<IndexedUpdate>> RunningCall::next(std::chrono::milliseconds timeout) {
  std::vector<IndexedUpdate> updates = co_await inbox_->take(timeout);
  for (const auto& [index, update] : updates) {
    if (metrics_ != nullptr) measured_[index].add(update, *metrics_);
    if (!update.finish) continue;
    if (is_overrun(update)) {  // nothing comes after it
      unfinished_->abort_all(engine_);
      num_unfinished_ = 0;
      break;
    }
    --num_unfinished_;
  }
  co_return updates;
}

void RunningCall::Unfinished::submitted(std::size_t index, RequestHandle handle) {
  const std::lock_guard lock(mutex);
  if (!requests[index].has_ended) requests[index].handle = handle;
}

void RunningCall::Unfinished::finish(std::size_t index) {
  const std::lock_guard lock(mutex);
  requests[index] = {.handle = std::nullopt, .has_ended = true};
}

void RunningCall::Unfinished::abort(EngineClient& engine, std::size_t index) {
  std::optional<RequestHandle> handle;
  {
    const std::lock_guard lock(mutex);
    handle = std::exchange(requests[index].handle, std::nullopt);
  }
  if (handle) static_cast<void>(engine.abort(*handle));
}

/// An engine that cannot be reached has ended them already.
void RunningCall::Unfinished::abort_all(EngineClient& engine) {
  std::vector<RequestHandle> running;
  {
    const std::lock_guard lock(mutex);
    for (OneRequest& request : requests) {
      if (const auto handle = std::exchange(request.handle, std::nullopt))
        running.push_back(*handle);
    }
  }
  for (const RequestHandle handle : running) static_cast<void>(engine.abort(handle));
}

}  // namespace slime::engine
