#pragma once

/// All open sessions of a server, by name, within bounds.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "engine/sessions/session.h"

namespace slime::engine {

struct SessionLimits {
  int64_t max_sessions = 4096;
  int64_t max_bytes = int64_t{4} << 30;  // of the turns of all sessions
  std::chrono::seconds idle_time{3600};  // without a request; then a session is dropped
};

/// Thread-safe.
class SessionStore final {
 public:
  using Now = SessionTime (*)();

  /// `model` outlives the store; its context may still change until the first session is opened.
  SessionStore(const ServedModel& model, const SessionLimits& limits,
               Now now = std::chrono::steady_clock::now);

  /// Throws ApiError: 409 when there is one of that name, 429 when there are too many, or their turns take
  /// too much. Sessions that were idle for too long are dropped first.
  std::shared_ptr<Session> open(const std::string& name, SessionOptions options);
  /// Null where none is open.
  std::shared_ptr<Session> find(std::string_view name) const;
  /// Takes it out: its name is free from then on. Nothing happens when another one has its name by now.
  void remove(const std::shared_ptr<Session>& session);

  /// Throws ApiError 429 when the turns of all sessions take too much for another one.
  void check_room() const;

  std::vector<std::shared_ptr<Session>> all() const;
  int64_t num_bytes() const { return num_bytes_; }
  int64_t num_dropped() const { return num_dropped_; }

 private:
  std::vector<std::shared_ptr<Session>> take_idle();

  const ServedModel& model_;
  const SessionLimits limits_;
  const Now now_;
  const std::vector<std::string> end_marks_;
  std::atomic<int64_t> num_bytes_{0};
  std::atomic<int64_t> num_dropped_{0};
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Session>, std::less<>> sessions_;  // guarded by mutex_
};

/// Throws ConfigError for what cannot be a session's name: it has 1 to 256 letters, digits, or -._~:@+=
void check_session_name(std::string_view name);

}  // namespace slime::engine
