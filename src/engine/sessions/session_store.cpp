#include "engine/sessions/session_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <utility>

#include "core/error.h"
#include "engine/http/api_error.h"
#include "engine/sessions/turn_tail.h"

namespace slime::engine {
namespace {

constexpr std::size_t kLongestName = 256;

}  // namespace

void check_session_name(std::string_view name) {
  const auto is_allowed = [](unsigned char byte) {
    return std::isalnum(byte) != 0 ||
           std::string_view("-._~:@+=").find(static_cast<char>(byte)) != std::string_view::npos;
  };
  if (name.empty() || name.size() > kLongestName || !std::ranges::all_of(name, is_allowed)) {
    throw ConfigError(fmt::format(
        "name must have 1 to {} characters: letters, digits, and -._~:@+=", kLongestName));
  }
}

SessionStore::SessionStore(const ServedModel& model, const SessionLimits& limits, Now now)
    : model_(model),
      limits_(limits),
      now_(now),
      end_marks_(model.tokenizer == nullptr ? std::vector<std::string>()
                                            : end_marks_of(*model.tokenizer)) {}

/// Those that nothing was asked of for too long. Called with the lock held.
std::vector<std::shared_ptr<Session>> SessionStore::take_idle() {
  std::vector<std::shared_ptr<Session>> idle;
  for (auto at = sessions_.begin(); at != sessions_.end();) {
    const Session& session = *at->second;
    if (session.num_running() == 0 && now_() - session.last_used() > limits_.idle_time) {
      at->second->close();
      idle.push_back(std::move(at->second));
      at = sessions_.erase(at);
    } else {
      ++at;
    }
  }
  num_dropped_ += static_cast<int64_t>(idle.size());
  return idle;
}

std::shared_ptr<Session> SessionStore::open(const std::string& name, SessionOptions options) {
  check_session_name(name);
  std::vector<std::shared_ptr<Session>> idle;
  std::shared_ptr<Session> session;
  bool is_full = false, is_taken = false;
  {
    const std::lock_guard lock(mutex_);
    idle = take_idle();
    is_taken = sessions_.contains(name);
    is_full = static_cast<int64_t>(sessions_.size()) >= limits_.max_sessions;
    if (!is_taken && !is_full) {
      session = std::make_shared<Session>(name, std::move(options), model_, end_marks_, num_bytes_);
      sessions_.emplace(name, session);
    }
  }
  // Not fmt::print, which throws when standard error is gone.
  for (const auto& dropped : idle) {
    std::fputs(fmt::format("the session {} was idle for {} s and is dropped: {} turns are lost\n",
                           dropped->name(), limits_.idle_time.count(), dropped->num_turns())
                   .c_str(),
               stderr);
  }
  idle.clear();
  if (is_taken) {
    throw ApiError({.status = 409, .code = "session_exists", .param = "name"},
                   "there is a session " + name + " already");
  }
  if (is_full) {
    throw ApiError({.status = 429, .code = "too_many_sessions"},
                   fmt::format("{} sessions are open, as many as this server keeps: end some",
                               limits_.max_sessions));
  }
  try {
    check_room();
  } catch (const ApiError&) {
    remove(session);
    throw;
  }
  return session;
}

std::shared_ptr<Session> SessionStore::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(name);
  return found == sessions_.end() ? nullptr : found->second;
}

void SessionStore::remove(const std::shared_ptr<Session>& session) {
  session->close();
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(session->name());
  if (found != sessions_.end() && found->second == session) sessions_.erase(found);
}

void SessionStore::check_room() const {
  if (num_bytes_ < limits_.max_bytes) return;
  throw ApiError({.status = 429, .code = "sessions_full"},
                 fmt::format("the turns of the open sessions take {} MiB, as much as this server "
                             "keeps: end some",
                             limits_.max_bytes >> 20));
}

std::vector<std::shared_ptr<Session>> SessionStore::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Session>> all;
  for (const auto& [name, session] : sessions_) all.push_back(session);
  return all;
}

}  // namespace slime::engine
