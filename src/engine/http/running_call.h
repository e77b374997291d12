#pragma once

/// The engine requests of one HTTP call, from submission to their last updates. Lives in the
/// handler's coroutine; when it goes (answered, client gone, exception) whatever still runs is
/// aborted.

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/client.h"
#include "engine/http/update_inbox.h"
#include "net/http_exchange.h"

namespace slime::engine {

class RunningCall {
 public:
  /// Submits them all. They are aborted when the peer of `exchange` goes away, or when their answer
  /// outgrows its share of `memory`. The references outlive the object.
  RunningCall(EngineClient& engine, net::HttpExchange& exchange, ResponseMemory& memory,
              const ResponseCost& cost, std::vector<GenerateRequest> requests);
  ~RunningCall();
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

  /// Waits for updates, as many as there are. Empty when none came within `timeout`.
  net::Task<std::vector<IndexedUpdate>> next(
      std::chrono::milliseconds timeout = std::chrono::hours(24));

  bool is_finished() const { return num_unfinished_ == 0; }

 private:
  /// What there is to abort. A request leaves as soon as the engine says that it has ended, before
  /// next() tells: its rid may be another client's by then, and where it was refused because the
  /// rid is in use, always was.
  struct Unfinished {
    void finish(std::size_t index);  // any thread
    /// Each is aborted once, whoever asks.
    void abort_all(EngineClient& engine);

    std::mutex mutex;
    std::vector<std::string> rids;  // guarded by mutex; of a request that has ended it is empty
  };

  EngineClient& engine_;
  net::HttpExchange& exchange_;
  std::shared_ptr<UpdateInbox> inbox_;
  std::shared_ptr<Unfinished> unfinished_;
  std::size_t num_unfinished_;  // as far as next() has told
};

}  // namespace slime::engine
