#pragma once

/// Admission of requests: so many at once, so many that wait for a place and not for ever; further ones
/// are refused, which costs nothing.

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "gateway/cancellation.h"
#include "net/http_exchange.h"

namespace slime::gateway {

struct AdmissionConfig {
  int64_t max_running = 4096;  // negative: any number
  int64_t max_waiting = 1024;
  std::chrono::milliseconds max_wait{60'000};
};

class Admission final {
  struct Waiter;

 public:
  explicit Admission(const AdmissionConfig& config) : config_(config) {}

  /// A place; given back with the object.
  class Place {
   public:
    explicit Place(Admission* admission) : admission_(admission) {}
    ~Place() {
      if (admission_ != nullptr) admission_->leave();
    }
    Place(Place&& other) noexcept : admission_(std::exchange(other.admission_, nullptr)) {}
    Place& operator=(Place&&) = delete;
    explicit operator bool() const { return admission_ != nullptr; }

   private:
    Admission* admission_;  // null: there was none
  };

  /// False: too many wait, it took too long, or the client went away. `cancellation` outlives the call.
  net::Task<Place> enter(Cancellation& cancellation);

  int64_t num_running() const;
  int64_t num_waiting() const;

 private:
  void leave();

  const AdmissionConfig config_;
  mutable std::mutex mutex_;
  int64_t num_running_ = 0;                      // guarded by mutex_, as the next
  std::deque<std::shared_ptr<Waiter>> waiting_;  // the oldest first
};

}  // namespace slime::gateway
