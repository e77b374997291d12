#include "engine/http/session_access.h"

#include <optional>
#include <string_view>
#include <vector>

#include "engine/http/api_error.h"
#include "engine/http/api_state.h"
#include "engine/sessions/session_call.h"

namespace slime::engine {
namespace {

constexpr std::string_view kBearer = "bearer ";

void add_text(const json::object& object, std::string_view name, std::vector<std::string>& names) {
  const json::value* value = object.if_contains(name);
  if (value != nullptr && value->is_string()) names.emplace_back(value->get_string());
}

/// What may name a session without having to.
std::vector<std::string> possible_names(const net::HttpHeaders& headers, const json::object& body) {
  std::vector<std::string> names;
  if (const auto given = net::find_header(headers, "authorization")) {
    if (given->size() > kBearer.size() &&
        net::equals_ignoring_case(given->substr(0, kBearer.size()), kBearer))
      names.emplace_back(given->substr(kBearer.size()));
  }
  if (const auto key = net::find_header(headers, "x-api-key")) names.emplace_back(*key);
  const json::value* metadata = body.if_contains("metadata");
  if (metadata != nullptr && metadata->is_object())
    add_text(metadata->get_object(), "session_id", names);
  add_text(body, "user", names);
  return names;
}

std::shared_ptr<Session> find_session(const ApiState& state, const net::HttpHeaders& headers,
                                      const json::object& body) {
  if (const auto name = net::find_header(headers, kSessionHeader)) {
    if (auto session = state.sessions.find(*name)) return session;
    throw ApiError({.status = 401, .code = "invalid_session"},
                   "no session is open under the name " + std::string(*name));
  }
  for (const std::string& name : possible_names(headers, body)) {
    if (auto session = state.sessions.find(name)) return session;
  }
  if (!state.options.requires_sessions) return nullptr;
  throw ApiError({.status = 401},
                 "no session is open under this key: it is the name that POST /sessions was given");
}

}  // namespace

std::shared_ptr<ChatSession> session_of(const ApiState& state, const net::HttpHeaders& headers,
                                        const json::object& body) {
  std::shared_ptr<Session> session = find_session(state, headers, body);
  if (session == nullptr) return nullptr;
  state.sessions.check_room();
  return std::make_shared<SessionCall>(std::move(session));
}

}  // namespace slime::engine
