#pragma once

/// Health checks of a gateway's workers: each is asked in its interval, all on one thread.

#include <boost/asio/io_context.hpp>
#include <thread>

#include "gateway/worker_calls.h"
#include "gateway/workers.h"

namespace slime::gateway {

class HealthChecks final {
 public:
  /// `workers` outlives the object.
  HealthChecks(const HealthConfig& config, Workers& workers);
  ~HealthChecks();
  HealthChecks(const HealthChecks&) = delete;
  HealthChecks& operator=(const HealthChecks&) = delete;

 private:
  net::Task<void> look_around();
  net::Task<void> look_at(Workers::View worker);
  /// Of workers that are about to serve, also again: somebody may have started another server there.
  net::Task<void> ask_for_models(Workers::View worker);

  const HealthConfig config_;
  Workers& workers_;
  WorkerCall call_;
  Cancellation cancellation_;
  boost::asio::io_context context_{1};
  std::jthread thread_;  // last: it uses everything above
};

}  // namespace slime::gateway
