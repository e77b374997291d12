#pragma once

/// The engine requests of one HTTP call, from submission to their last updates. Lives in the
/// handler's coroutine; when it goes (answered, client gone, exception) whatever still runs is
/// aborted.

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/client.h"
#include "engine/http/request_metrics.h"
#include "engine/http/update_inbox.h"
#include "net/http_exchange.h"

namespace slime::engine {

class RunningCall {
 public:
  /// Submits them all. They are aborted when the peer of `exchange` goes away, or when their answer
  /// outgrows its share of `memory`. `metrics`: where they count, or null. The references outlive the
  /// object.
  RunningCall(EngineClient& engine, net::HttpExchange& exchange, ResponseMemory& memory,
              const ResponseCost& cost, std::vector<GenerateRequest> requests,
              RequestMetrics* metrics = nullptr);
  ~RunningCall();
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

  /// Waits for updates, as many as there are. Empty when none came within `timeout`.
  net::Task<std::vector<IndexedUpdate>> next(
      std::chrono::milliseconds timeout = std::chrono::hours(24));

  /// The engine ends one request soon, with a last update.
  void abort(std::size_t index) { unfinished_->abort(engine_, index); }

  bool is_finished() const { return num_unfinished_ == 0; }

 private:
  /// What there is to abort: each request is asked for once at most, whoever asks, and not when it
  /// has ended.
  struct Unfinished {
    explicit Unfinished(std::size_t num_requests) : requests(num_requests) {}
    void submitted(std::size_t index, RequestHandle handle);
    void finish(std::size_t index);  // any thread
    void abort(EngineClient& engine, std::size_t index);
    void abort_all(EngineClient& engine);

    struct OneRequest {
      std::optional<RequestHandle> handle;  // while there is something to abort
      bool has_ended = false;
    };
    std::mutex mutex;
    std::vector<OneRequest> requests;  // guarded by mutex
  };

  EngineClient& engine_;
  net::HttpExchange& exchange_;
  std::shared_ptr<UpdateInbox> inbox_;
  std::shared_ptr<Unfinished> unfinished_;
  std::size_t num_unfinished_;  // as far as next() has told
  RequestMetrics* metrics_;
  std::vector<MeasuredRequest> measured_;
};

}  // namespace slime::engine
