#pragma once

/// Limit on the samples in the engine at once: coroutines of one thread wait in line for a
/// permit.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <utility>

namespace slime::rollout {

class ConcurrencyLimit {
 public:
  /// Goes back when it is destroyed, also by an exception.
  class Permit {
   public:
    explicit Permit(ConcurrencyLimit& limit) : limit_(&limit) {}
    Permit(Permit&& other) noexcept : limit_(std::exchange(other.limit_, nullptr)) {}
    Permit& operator=(Permit&&) = delete;
    ~Permit() {
      if (limit_ != nullptr) limit_->give_back();
    }

   private:
    ConcurrencyLimit* limit_;
  };

  explicit ConcurrencyLimit(int64_t count) : num_free_(count) {}
  ConcurrencyLimit(const ConcurrencyLimit&) = delete;
  ConcurrencyLimit& operator=(const ConcurrencyLimit&) = delete;

  /// In the order of asking. The limit outlives the permit.
  boost::asio::awaitable<Permit> acquire();

 private:
  /// The permit goes to the first in line, if there is one.
  void give_back();

  int64_t num_free_;
  std::deque<boost::asio::steady_timer*> waiting_;
};

}  // namespace slime::rollout
