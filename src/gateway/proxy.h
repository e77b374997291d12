#pragma once

/// Proxy of one request: chooses a worker, passes the request on, and its answer back as it comes.
///
/// As long as nothing of an answer has gone to the client, the request may be given to another worker:
///
///   no connection                          yes, whatever it is: nobody has read it
///   connection lost before an answer       if it can be repeated; at most two workers are lost with it
///   500, 502, 503, 504, 429                if it can be repeated, on each worker once
///   any other answer                       it is the answer
///
/// Requests for tokens, and GETs, can be repeated. A client that goes away takes its request along.

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <string>

#include "gateway/admission.h"
#include "gateway/workers.h"
#include "net/http_exchange.h"

namespace slime::gateway {

struct RetryConfig {
  int max_retries = 5;  // 0: each request goes to one worker
  std::chrono::milliseconds first_pause{50};
  std::chrono::milliseconds longest_pause{5'000};
  double pause_factor = 1.5;
  double jitter = 0.2;
};

struct ProxyConfig {
  RetryConfig retry;
  AdmissionConfig admission;
  std::chrono::milliseconds connect_timeout{5'000};
  std::chrono::milliseconds request_timeout{14'400'000};  // to the end of the answer
  /// Headers that name a request, in this order; one is made where a request has none of them.
  std::vector<std::string> request_id_headers{"x-request-id", "x-correlation-id", "x-trace-id",
                                              "request-id"};
};

/// Since the start, for /metrics.
struct ProxyCounters {
  std::atomic<int64_t> num_requests{0};
  std::atomic<int64_t> num_retries{0};
  std::atomic<int64_t> num_cut{0};      // answers that a worker did not end
  std::atomic<int64_t> num_left{0};     // requests whose client went away
  std::atomic<int64_t> num_refused{0};  // by admission
  std::atomic<int64_t> num_nowhere{0};  // for which there was no worker

  void count_status(int status);
  std::map<int, int64_t> statuses() const;

 private:
  mutable std::mutex mutex_;
  std::map<int, int64_t> statuses_;  // guarded by mutex_
};

/// Whether a request that a worker may have read can be given to another one.
bool can_be_repeated(const net::HttpRequest& request);

class Proxy final {
 public:
  /// `workers` outlives the object.
  Proxy(const ProxyConfig& config, Workers& workers);

  net::Task<void> forward(net::HttpExchange& exchange);

  const ProxyCounters& counters() const { return counters_; }
  const Admission& admission() const { return admission_; }

 private:
  struct Call;     // one request on its way
  struct Attempt;  // what became of it in one worker

  net::Task<void> serve(Call& call);
  net::Task<Attempt> try_worker(Call& call, Workers::Lease& lease);
  net::Task<Attempt> pass_on(Call& call, Workers::Lease& lease,
                             const std::shared_ptr<net::HttpUpstream>& upstream);
  net::Task<void> pause(Call& call, int num_retries);

  const ProxyConfig config_;
  Workers& workers_;
  Admission admission_;
  ProxyCounters counters_;
};

}  // namespace slime::gateway
