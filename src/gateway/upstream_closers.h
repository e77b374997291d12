#pragma once

/// Closers of a worker's connection that is in use: a client that goes away, a deadline.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>

#include "gateway/cancellation.h"
#include "net/http_upstream.h"

namespace slime::gateway {

using Deadline = std::chrono::steady_clock::time_point;

/// Closes a connection that is in use at a deadline.
class CloseAt final {
 public:
  CloseAt(Deadline deadline, const boost::asio::any_io_executor& strand,
          const std::shared_ptr<net::HttpUpstream>& upstream)
      : timer_(strand, deadline), state_(std::make_shared<State>()) {
    timer_.async_wait([state = state_, upstream](boost::system::error_code error) {
      if (error || state->is_over) return;
      state->is_late = true;
      upstream->close("it took longer than --request-timeout-secs");
    });
  }
  ~CloseAt() { state_->is_over = true; }
  CloseAt(const CloseAt&) = delete;
  CloseAt& operator=(const CloseAt&) = delete;

  bool is_late() const { return state_->is_late; }

 private:
  struct State {
    bool is_late = false;
    bool is_over = false;
  };
  boost::asio::steady_timer timer_;
  std::shared_ptr<State> state_;
};

/// As long as an answer is read: what may close its connection.
struct Closers {
  Closers(Cancellation& cancellation, Deadline deadline, const boost::asio::any_io_executor& strand,
          const std::shared_ptr<net::HttpUpstream>& upstream)
      : scope(cancellation, [upstream] { upstream->close("the client is gone"); }),
        close_at(deadline, strand, upstream) {}
  Cancellation::Scope scope;
  CloseAt close_at;
};

}  // namespace slime::gateway
