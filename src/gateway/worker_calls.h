#pragma once

/// Calls of the gateway's own to its workers: one with its whole answer, or the same to several at once.

#include <chrono>
#include <string>
#include <vector>

#include "core/expected.h"
#include "gateway/cancellation.h"
#include "gateway/workers.h"
#include "net/http_exchange.h"

namespace slime::gateway {

/// What is asked. The headers are those of a client, of which the ones that end at a hop are left out.
struct WorkerCall {
  net::HttpRequest request;
  std::chrono::milliseconds timeout{60'000};  // to the end of the answer
  std::size_t answer_limit_bytes = std::size_t{16} << 20;
};

/// On the executor of the calling coroutine. Any answer is a response. `call` and `cancellation` outlive
/// it.
net::Task<Expected<net::HttpResponse>> call_worker(const WorkerCall& call, WorkerAddress worker,
                                                   Cancellation& cancellation);

struct WorkerAnswer {
  Workers::View worker;
  Expected<net::HttpResponse> response;
};

/// All are asked at once; the answers in the order of `workers`.
net::Task<std::vector<WorkerAnswer>> call_workers(const WorkerCall& call,
                                                  std::vector<Workers::View> workers,
                                                  Cancellation& cancellation);

}  // namespace slime::gateway
