#pragma once

/// Client of a server's chat completions, one answer at a time, as it streams.

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "chat/answer.h"
#include "core/expected.h"
#include "core/json.h"
#include "net/web_client.h"

namespace slime::chat {

/// A server that is asked.
struct ServerAddress {
  std::string url;      // without a path: "http://127.0.0.1:30000"
  std::string api_key;  // empty: none
  net::WebSettings web = {};
};

/// "127.0.0.1:30000/v1/" is "http://127.0.0.1:30000". Empty for what is no address of a server.
std::string server_url(std::string_view word);

/// Name of the first model in /v1/models.
Expected<std::string> first_model(const ServerAddress& server);

using OnPart = std::function<void(const AnswerPart&, const Answer&)>;

struct AnswerEnd {
  Answer answer;            // what came of it
  bool is_stopped = false;  // by `stop`
  std::string problem;      // empty: none
};

/// Asks for one answer. When `stop` is requested the connection is closed, which ends the answer in the server.
AnswerEnd complete(const ServerAddress& server, const json::object& request, const OnPart& on_part,
                   const std::stop_token& stop);

}  // namespace slime::chat
