#include "tinker/tinker_server.h"

#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace slime::tinker {
namespace {

namespace asio = boost::asio;
using net::HttpExchange;
using net::HttpRequest;
using net::HttpResponse;
using net::RouteClass;
using net::Task;

/// Below the 45 s after which clients give a request up.
constexpr std::chrono::seconds kLongestWait{40};
constexpr const char* kRoot = "/api/v1/";

HttpResponse detail(int status, std::string_view message) {
  return {.status = status, .body = json_text(json::object{{"detail", message}})};
}

json::object body_of(const HttpRequest& request) {
  if (request.body.empty()) return {};
  json::value value = parse_json(request.body, "body");
  if (!value.is_object()) throw ConfigError("body: should be a JSON object");
  return std::move(value.get_object());
}

bool is_protobuf(const HttpRequest& request) {
  const auto type = request.header("Content-Type");
  return type && type->find("protobuf") != std::string_view::npos;
}

using Answer = std::function<json::object(const HttpRequest&)>;

net::HttpHandler answered(Answer answer) {
  return net::answer_with([answer = std::move(answer)](const HttpRequest& request) {
    try {
      if (is_protobuf(request))
        return detail(415, "bodies are JSON here, forward_backward included");
      return HttpResponse{.status = 200, .body = json_text(answer(request))};
    } catch (const Refusal& refusal) {
      return detail(refusal.status(), refusal.what());
    } catch (const UnknownFuture& unknown) {
      return detail(404, unknown.what());
    } catch (const ConfigError& error) {
      return detail(400, error.what());
    }
  });
}

Task<void> retrieve(Futures& futures, HttpExchange& exchange) {
  std::string id;
  std::optional<HttpResponse> refused;
  const auto timer = std::make_shared<asio::steady_timer>(exchange.executor());
  try {
    const json::object body = body_of(exchange.request);
    id = FieldReader(body, "").required().text("request_id", 64).value_or("");
    timer->expires_after(kLongestWait);
    futures.call_when_answered(id, [timer, strand = exchange.executor()] {
      asio::post(strand, [timer] { timer->cancel(); });
    });
  } catch (const UnknownFuture& unknown) {
    refused = detail(404, unknown.what());
  } catch (const ConfigError& error) {
    refused = detail(400, error.what());
  }
  if (refused) {
    co_await exchange.send(*std::move(refused));
    co_return;
  }
  exchange.on_disconnect([timer] { timer->cancel(); });
  std::optional<std::string> answer = futures.answer_of(id);
  if (!answer) {
    boost::system::error_code is_cancelled;
    co_await timer->async_wait(asio::redirect_error(asio::use_awaitable, is_cancelled));
    answer = futures.answer_of(id);
  }
  HttpResponse response{.status = 200};
  response.body = answer
                      ? *std::move(answer)
                      : json_text(json::object{
                            {"type", "try_again"}, {"request_id", id}, {"queue_state", "active"}});
  co_await exchange.send(std::move(response));
}

/// "session-1" of /api/v1/sessions/session-1/finish.
std::string middle_of(const std::string& path, std::string_view before, std::string_view behind) {
  const std::string start = kRoot + std::string(before);
  if (!path.starts_with(start) || !path.ends_with(behind) ||
      path.size() <= start.size() + behind.size())
    throw Refusal(404, fmt::format("{}: there is no such route", path));
  return path.substr(start.size(), path.size() - start.size() - behind.size());
}

std::vector<net::HttpRoute> routes(Service& service) {
  std::vector<net::HttpRoute> all;
  const auto add = [&all](const char* method, const std::string& path, Answer answer) {
    all.emplace_back(method, kRoot + path, RouteClass::kControl, answered(std::move(answer)));
  };
  const auto post = [&](const char* name, json::object (Service::*member)(const json::object&)) {
    add("POST", name, [&service, member](const HttpRequest& request) {
      return (service.*member)(body_of(request));
    });
  };
  add("GET", "healthz", [](const HttpRequest&) { return json::object{{"status", "ok"}}; });
  add("POST", "client/config", [](const HttpRequest&) { return json::object(); });
  add("POST", "client/dynamic_config", [](const HttpRequest&) {
    return json::object{{"refresh_interval_sec", 300}};
  });
  add("POST", "telemetry", [](const HttpRequest&) { return json::object{{"status", "accepted"}}; });
  add("GET", "get_server_capabilities",
      [&service](const HttpRequest&) { return service.get_server_capabilities(); });
  post("create_session", &Service::create_session);
  post("session_heartbeat", &Service::session_heartbeat);
  add("POST", "sessions/*", [&service](const HttpRequest& request) {
    return service.finish_session(middle_of(request.path, "sessions/", "/finish"));
  });
  post("create_model", &Service::create_model);
  post("get_info", &Service::get_info);
  add("POST", "forward_backward", [&service](const HttpRequest& request) {
    return service.forward_backward(body_of(request), false);
  });
  add("POST", "forward", [&service](const HttpRequest& request) {
    return service.forward_backward(body_of(request), true);
  });
  post("optim_step", &Service::optim_step);
  post("save_weights", &Service::save_weights);
  post("load_weights", &Service::load_weights);
  post("save_weights_for_sampler", &Service::save_weights_for_sampler);
  post("weights_info", &Service::weights_info);
  post("create_sampling_session", &Service::create_sampling_session);
  add("GET", "samplers/*", [&service](const HttpRequest& request) {
    return service.sampler(middle_of(request.path, "samplers/", ""));
  });
  post("asample", &Service::asample);
  post("encode", &Service::encode);
  post("decode", &Service::decode);
  add("GET", "flags", [&service](const HttpRequest&) { return service.flags(); });
  all.emplace_back(
      "POST", std::string(kRoot) + "retrieve_future", RouteClass::kControl,
      [&service](HttpExchange& exchange) { return retrieve(service.futures(), exchange); });
  return all;
}

}  // namespace

TinkerServer::TinkerServer(net::HttpServerConfig config, Service& service)
    : server_(std::move(config), routes(service)) {}

}  // namespace slime::tinker
