#pragma once

/// Session that a chat request belongs to.

#include <memory>
#include <string>
#include <utility>

#include "core/json.h"
#include "engine/chat/chat_session.h"
#include "net/http_message.h"

namespace slime::engine {

struct ApiState;

/// Names the session: what /sessions/NAME/v1/... puts into the request.
inline constexpr const char* kSessionHeader = "x-slime-session";
/// For clients that ask again after 4xx.
inline const std::pair<std::string, std::string> kNoRetry{"x-should-retry", "false"};

/// By kSessionHeader; or else by the first of the bearer token, x-api-key, metadata.session_id and user
/// that names an open session. Null where none does. Throws ApiError: 401 when kSessionHeader names none,
/// or the server takes requests of sessions alone; 403 when the session is closed; 429 when the turns of
/// all sessions take too much.
std::shared_ptr<ChatSession> session_of(const ApiState& state, const net::HttpHeaders& headers,
                                        const json::object& body);

}  // namespace slime::engine
