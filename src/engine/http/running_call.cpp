#include "engine/http/running_call.h"

namespace slime::engine {
namespace {

void abort_unfinished(EngineClient& engine, const std::vector<std::string>& rids) {
  for (const std::string& rid : rids) {
    if (!rid.empty()) engine.abort(rid);
  }
}

}  // namespace

RunningCall::RunningCall(EngineClient& engine, net::HttpExchange& exchange,
                         std::vector<GenerateRequest> requests)
    : engine_(engine),
      exchange_(exchange),
      inbox_(std::make_shared<UpdateInbox>(exchange.executor())),
      rids_(std::make_shared<std::vector<std::string>>()),
      num_unfinished_(requests.size()) {
  for (const GenerateRequest& request : requests) rids_->push_back(request.rid);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    engine_.submit(std::move(requests[i]), [inbox = inbox_, i](GenerateUpdate update) {
      inbox->push(i, std::move(update));
    });
  }
  // Each aborted request still ends with an update, so the coroutine wakes and sees that nobody
  // listens.
  exchange_.on_disconnect([&engine = engine_, rids = rids_] { abort_unfinished(engine, *rids); });
}

RunningCall::~RunningCall() {
  exchange_.on_disconnect([] {});
  inbox_->close();
  if (num_unfinished_ > 0) abort_unfinished(engine_, *rids_);
}

net::Task<std::vector<IndexedUpdate>> RunningCall::next(std::chrono::milliseconds timeout) {
  std::vector<IndexedUpdate> updates = co_await inbox_->take(timeout);
  for (const auto& [index, update] : updates) {
    if (!update.finish) continue;
    (*rids_)[index].clear();
    --num_unfinished_;
  }
  co_return updates;
}

}  // namespace slime::engine
