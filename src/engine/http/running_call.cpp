#include "engine/http/running_call.h"

namespace slime::engine {

RunningCall::RunningCall(EngineClient& engine, net::HttpExchange& exchange, ResponseMemory& memory,
                         const ResponseCost& cost, std::vector<GenerateRequest> requests)
    : engine_(engine),
      exchange_(exchange),
      inbox_(std::make_shared<UpdateInbox>(exchange.executor(), memory, cost)),
      unfinished_(std::make_shared<Unfinished>()),
      num_unfinished_(requests.size()) {
  if (!inbox_->reserve(prompt_bytes(requests))) return;  // nothing is submitted, nothing to abort
  for (const GenerateRequest& request : requests) unfinished_->rids.push_back(request.rid);
  const auto abort_all = [&engine = engine_, unfinished = unfinished_] {
    unfinished->abort_all(engine);
  };
  inbox_->on_overrun(abort_all);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    engine_.submit(std::move(requests[i]),
                   [inbox = inbox_, unfinished = unfinished_, i](GenerateUpdate update) {
                     if (update.finish) unfinished->finish(i);
                     inbox->push(i, std::move(update));
                   });
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

void RunningCall::Unfinished::finish(std::size_t index) {
  const std::lock_guard lock(mutex);
  if (index < rids.size()) rids[index].clear();
}

/// An engine that cannot be reached has ended them already.
void RunningCall::Unfinished::abort_all(EngineClient& engine) {
  std::vector<std::string> running;
  {
    const std::lock_guard lock(mutex);
    running.swap(rids);
  }
  for (const std::string& rid : running) {
    if (!rid.empty()) static_cast<void>(engine.abort(rid));
  }
}

}  // namespace slime::engine
