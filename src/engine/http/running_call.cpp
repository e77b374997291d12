#include "engine/http/running_call.h"

namespace slime::engine {
namespace {

/// An engine that cannot be reached has ended them already.
void abort_each(EngineClient& engine, const std::vector<std::string>& rids) {
  for (const std::string& rid : rids) {
    if (!rid.empty()) static_cast<void>(engine.abort(rid));
  }
}

}  // namespace

RunningCall::RunningCall(EngineClient& engine, net::HttpExchange& exchange, ResponseMemory& memory,
                         const ResponseCost& cost, std::vector<GenerateRequest> requests)
    : engine_(engine),
      exchange_(exchange),
      inbox_(std::make_shared<UpdateInbox>(exchange.executor(), memory, cost)),
      rids_(std::make_shared<std::vector<std::string>>()),
      num_unfinished_(requests.size()) {
  for (const GenerateRequest& request : requests) rids_->push_back(request.rid);
  inbox_->on_overrun([&engine = engine_, rids = rids_] { abort_each(engine, *rids); });
  if (!inbox_->reserve(prompt_bytes(requests))) return;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    engine_.submit(std::move(requests[i]), [inbox = inbox_, i](GenerateUpdate update) {
      inbox->push(i, std::move(update));
    });
  }
  // Each aborted request still ends with an update, so the coroutine wakes and sees that nobody
  // listens.
  exchange_.on_disconnect([&engine = engine_, rids = rids_] { abort_each(engine, *rids); });
}

RunningCall::~RunningCall() {
  exchange_.on_disconnect([] {});
  inbox_->close();
  if (num_unfinished_ > 0) abort_each(engine_, *rids_);
}

net::Task<std::vector<IndexedUpdate>> RunningCall::next(std::chrono::milliseconds timeout) {
  std::vector<IndexedUpdate> updates = co_await inbox_->take(timeout);
  for (const auto& [index, update] : updates) {
    if (!update.finish) continue;
    if (is_overrun(update)) {  // nothing comes after it
      abort_each(engine_, *rids_);
      for (std::string& rid : *rids_) rid.clear();
      num_unfinished_ = 0;
      break;
    }
    (*rids_)[index].clear();
    --num_unfinished_;
  }
  co_return updates;
}

}  // namespace slime::engine
