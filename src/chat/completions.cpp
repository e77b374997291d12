#include "chat/completions.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "net/url_parts.h"

namespace slime::chat {
namespace {

constexpr std::size_t kLongestAnswer = std::size_t{64} << 20;
constexpr std::size_t kLongestError = std::size_t{1} << 20;

net::WebCall call_to(const ServerAddress& server, std::string path) {
  net::WebCall call;
  call.url = server.url + std::move(path);
  if (!server.api_key.empty())
    call.headers.emplace_back("Authorization", "Bearer " + server.api_key);
  return call;
}

}  // namespace

std::string server_url(std::string_view word) {
  std::string url(word);
  while (url.ends_with('/')) url.pop_back();
  for (const std::string_view end : {"/chat/completions", "/v1"})
    if (url.ends_with(end)) url.erase(url.size() - end.size());
  if (url.find("://") == std::string::npos) {
    // HOST:PORT; a path of a folder has no colon with a number behind it.
    const std::size_t colon = url.rfind(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == url.size() ||
        url.find('/') != std::string::npos ||
        url.find_first_not_of("0123456789", colon + 1) != std::string::npos)
      return "";
    url = "http://" + url;
  }
  return net::origin_of(url).empty() ? "" : url;
}

Expected<std::string> first_model(const ServerAddress& server) {
  std::string body;
  net::WebCall call = call_to(server, "/v1/models");
  call.on_body = [&body](std::string_view bytes) {
    if (body.size() + bytes.size() > kLongestError)
      throw std::runtime_error("the list of models is longer than a server's is");
    body += bytes;
  };
  const auto head = net::web_call(call, server.web);
  if (!head) return failure(head.error().message);
  if (head->status != 200) return failure(message_of_error(head->status, body));
  const auto answer = try_parse_json(body);
  const json::value* list =
      answer && answer->is_object() ? answer->get_object().if_contains("data") : nullptr;
  if (list != nullptr && list->is_array()) {
    for (const json::value& model : list->get_array()) {
      const json::value* id = model.is_object() ? model.get_object().if_contains("id") : nullptr;
      if (id != nullptr && id->is_string()) return std::string(id->get_string());
    }
  }
  return failure("/v1/models names no model");
}

AnswerEnd complete(const ServerAddress& server, const json::object& request, const OnPart& on_part,
                   const std::stop_token& stop) {
  AnswerEnd end;
  EventLines lines;
  std::string error_body;
  std::size_t num_bytes = 0;
  int status = 0;
  net::WebCall call = call_to(server, "/v1/chat/completions");
  call.method = "POST";
  call.body = json_text(request);
  call.on_head = [&status](const net::WebHead& head) {
    status = head.status;
    return true;
  };
  std::exception_ptr unshown;  // on_part's, which is no matter of the server's
  const auto show = [&](const AnswerPart& part) {
    try {
      on_part(part, end.answer);
    } catch (...) {
      unshown = std::current_exception();
      throw;
    }
  };
  call.on_body = [&](std::string_view bytes) {
    num_bytes += bytes.size();
    if (num_bytes > kLongestAnswer) throw std::runtime_error("the answer is longer than 64 MiB");
    if (status != 200) {
      error_body += bytes.substr(0, kLongestError - std::min(kLongestError, error_body.size()));
      return;
    }
    const bool is_event_stream =
        lines.add(bytes, [&](std::string_view data) { show(add_event(data, end.answer)); });
    if (!is_event_stream) throw std::runtime_error("the server sends no events");
  };
  try {
    const auto head = net::web_call(call, server.web, stop);
    if (stop.stop_requested()) {
      end.is_stopped = true;
    } else if (!head) {
      end.problem = head.error().message;
    } else if (head->status != 200) {
      end.problem = message_of_error(head->status, error_body);
    } else if (end.answer.finish.empty()) {
      end.problem = "the server ended its answer early";
    }
  } catch (const std::runtime_error& error) {
    if (unshown) std::rethrow_exception(unshown);
    end.problem = error.what();
  }
  return end;
}

}  // namespace slime::chat
