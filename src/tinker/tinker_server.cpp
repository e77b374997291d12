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
#include "net/access.h"
#include "net/digest.h"

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
/// For requests that are being answered when the server stops.
constexpr std::chrono::seconds kLongestStop{2};
constexpr const char* kRoot = "/api/v1/";
constexpr const char* kProtobuf = "application/x-protobuf";

HttpResponse detail(int status, std::string_view message) {
  return {.status = status, .body = json_text(json::object{{"detail", message}})};
}

/// Whether a header names Protocol Buffers.
bool names_protobuf(const HttpRequest& request, std::string_view header) {
  const auto type = request.header(header);
  return type && type->find("protobuf") != std::string_view::npos;
}

json::object body_of(const HttpRequest& request) {
  if (request.body.empty()) return {};
  if (names_protobuf(request, "Content-Type"))
    throw Refusal(415,
                  "the body of this request is JSON; that of forward_backward may be a message");
  json::value value = parse_json(request.body, "body");
  if (!value.is_object()) throw ConfigError("body: should be a JSON object");
  return std::move(value.get_object());
}

using Keys = std::vector<std::string>;

std::string_view key_of(const HttpRequest& request) {
  constexpr std::string_view kBearer = "Bearer ";
  if (const auto key = request.header("X-API-Key")) return *key;
  const std::string_view given = request.header("Authorization").value_or("");
  return given.starts_with(kBearer) ? given.substr(kBearer.size()) : std::string_view();
}

/// The name under which what a client makes is kept: nothing that its key could be found from.
std::string owner_of(const Keys& keys, const HttpRequest& request) {
  const std::string_view key = key_of(request);
  bool is_known = keys.empty();
  for (const std::string& each : keys) is_known |= net::keys_equal(key, each);
  if (!is_known) throw Refusal(401, "the key is not one of this server's");
  return key.empty() ? "" : net::sha256(key);
}

/// Nothing in a body may name what is another client's.
void check_names(const Service& service, const std::string& owner, const json::object& body) {
  for (const char* name : {"session_id", "model_id", "sampling_session_id", "request_id", "path",
                           "model_path", "tinker_path"}) {
    const json::value* value = body.if_contains(name);
    if (value != nullptr && value->is_string())
      service.require_owner(owner, std::string(value->get_string()));
  }
  for (const std::string& id : FieldReader(body, "").texts("requires"))
    service.require_owner(owner, id);
}

/// Of the exception that is being handled; one that is no refusal goes on.
HttpResponse refusal_of_current() {
  try {
    throw;
  } catch (const Refusal& refusal) {
    return detail(refusal.status(), refusal.what());
  } catch (const UnknownFuture& unknown) {
    return detail(unknown.is_lost() ? 410 : 404, unknown.what());
  } catch (const ConfigError& error) {
    return detail(400, error.what());
  }
}

/// It may move the body out of the request, which may be large.
using Respond = std::function<json::object(HttpRequest&, const std::string& owner)>;

HttpResponse response_to(HttpRequest& request, const Keys& keys, const Respond& respond) {
  try {
    const std::string owner = owner_of(keys, request);
    if (request.header("Content-Encoding"))
      return detail(415, "bodies are not compressed here: client/config says so");
    return {.status = 200, .body = json_text(respond(request, owner))};
  } catch (...) {
    return refusal_of_current();
  }
}

Task<void> send(HttpResponse response, HttpExchange& exchange) {
  co_await exchange.send(std::move(response));
}

net::HttpHandler answered(std::shared_ptr<const Keys> keys, Respond respond) {
  return [keys = std::move(keys), respond = std::move(respond)](HttpExchange& exchange) {
    return send(response_to(exchange.request, *keys, respond), exchange);
  };
}

/// Null: it is not there yet, or was forgotten while somebody waited, which the client hears when it asks again.
std::shared_ptr<const Answer> answer_if_known(const Futures& futures, const std::string& id) {
  try {
    return futures.answer_of(id);
  } catch (const UnknownFuture&) {
    return nullptr;
  }
}

Task<void> retrieve(Service& service, const Keys& keys, HttpExchange& exchange) {
  Futures& futures = service.futures();
  std::string id;
  std::optional<HttpResponse> refused;
  const auto timer = std::make_shared<asio::steady_timer>(exchange.executor());
  try {
    const json::object body = body_of(exchange.request);
    id = FieldReader(body, "").required().text("request_id", 256).value_or("");
    check_names(service, owner_of(keys, exchange.request), body);
    timer->expires_after(kLongestWait);
    futures.call_when_answered(id, [timer, strand = exchange.executor()] {
      asio::post(strand, [timer] { timer->cancel(); });
    });
  } catch (...) {
    refused = refusal_of_current();
  }
  if (refused) {
    co_await exchange.send(*std::move(refused));
    co_return;
  }
  exchange.on_disconnect([timer] { timer->cancel(); });
  std::shared_ptr<const Answer> answer = answer_if_known(futures, id);
  if (!answer) {
    boost::system::error_code is_cancelled;
    co_await timer->async_wait(asio::redirect_error(asio::use_awaitable, is_cancelled));
    answer = answer_if_known(futures, id);
  }
  HttpResponse response{.status = 200};
  std::optional<std::string> message;
  if (answer && names_protobuf(exchange.request, "Accept")) message = protobuf_of(*answer);
  if (message) {
    response.content_type = kProtobuf;
    response.body = *std::move(message);
  } else if (answer) {
    response.body = json_text(json_of(*answer));
  } else {
    response.body = json_text(
        json::object{{"type", "try_again"}, {"request_id", id}, {"queue_state", "active"}});
  }
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

/// "MODEL" and "weights/one" of "MODEL/checkpoints/weights/one"; the second is empty for the list.
std::pair<std::string, std::string> checkpoint_of(const std::string& path) {
  constexpr std::string_view kMiddle = "/checkpoints";
  const std::string rest = middle_of(path, "training_runs/", "");
  const std::size_t at = rest.find(kMiddle);
  if (at == std::string::npos) throw Refusal(404, fmt::format("{}: there is no such route", path));
  std::string name = rest.substr(at + kMiddle.size());
  if (name.starts_with("/")) name.erase(0, 1);
  return {rest.substr(0, at), name};
}

std::vector<net::HttpRoute> routes(Service& service, const std::shared_ptr<const Keys>& keys) {
  std::vector<net::HttpRoute> all;
  const auto add = [&](const char* method, const std::string& path, Respond respond) {
    all.emplace_back(method, kRoot + path, RouteClass::kProbe, answered(keys, std::move(respond)));
  };
  const auto post = [&](const char* name, json::object (Service::*member)(const json::object&)) {
    add("POST", name, [&service, member](const HttpRequest& request, const std::string& owner) {
      const json::object body = body_of(request);
      check_names(service, owner, body);
      return (service.*member)(body);
    });
  };
  const auto fixed = [&](const char* method, const char* name, const json::object& answer) {
    add(method, name, [answer](const HttpRequest&, const std::string&) { return answer; });
  };
  fixed("GET", "healthz", {{"status", "ok"}, {"tested_sdk_versions", "0.25.0 to 0.38.0"}});
  fixed("POST", "client/config", {});
  fixed("POST", "client/dynamic_config", {{"refresh_interval_sec", 300}});
  fixed("POST", "telemetry", {{"status", "accepted"}});
  add("GET", "get_server_capabilities", [&service](const HttpRequest&, const std::string&) {
    return service.get_server_capabilities();
  });
  add("POST", "create_session", [&service](const HttpRequest& request, const std::string& owner) {
    body_of(request);
    return service.create_session(owner);
  });
  post("session_heartbeat", &Service::session_heartbeat);
  add("POST", "sessions/*", [&service](const HttpRequest& request, const std::string& owner) {
    const std::string session = middle_of(request.path, "sessions/", "/finish");
    service.require_owner(owner, session);
    return service.finish_session(session);
  });
  post("create_model", &Service::create_model);
  post("get_info", &Service::get_info);
  const auto pass = [&](const char* name, bool is_forward_only) {
    add("POST", name, [&service, is_forward_only](HttpRequest& request, const std::string& owner) {
      if (names_protobuf(request, "Content-Type")) {
        service.require_owner(owner, read_protobuf_head(request.body).model_id);
        return service.forward_backward_message(std::move(request.body));
      }
      json::object body = body_of(request);
      check_names(service, owner, body);
      return service.forward_backward(std::move(body), is_forward_only);
    });
  };
  pass("forward_backward", false);
  pass("forward", true);
  post("optim_step", &Service::optim_step);
  post("save_weights", &Service::save_weights);
  post("load_weights", &Service::load_weights);
  post("save_weights_for_sampler", &Service::save_weights_for_sampler);
  add("POST", "save_weights_external", [](const HttpRequest&, const std::string&) -> json::object {
    throw Refusal(404, "nothing is exported: what was saved lies in the store, MODEL/weights/NAME");
  });
  post("weights_info", &Service::weights_info);
  post("create_sampling_session", &Service::create_sampling_session);
  add("GET", "samplers/*", [&service](const HttpRequest& request, const std::string& owner) {
    const std::string sampler = middle_of(request.path, "samplers/", "");
    service.require_owner(owner, sampler);
    return service.sampler(sampler);
  });
  add("GET", "training_runs", [&service](const HttpRequest&, const std::string& owner) {
    return service.training_runs(owner);
  });
  add("GET", "training_runs/*", [&service](const HttpRequest& request, const std::string& owner) {
    const std::string run = middle_of(request.path, "training_runs/", "");
    if (run.find('/') == std::string::npos) {
      service.require_owner(owner, run);
      return service.training_run(run);
    }
    const auto [model, name] = checkpoint_of(request.path);
    service.require_owner(owner, model);
    if (!name.empty()) throw Refusal(404, "what was saved is listed here, and lies in the store");
    return service.checkpoints(model);
  });
  add("DELETE", "training_runs/*",
      [&service](const HttpRequest& request, const std::string& owner) {
        const auto [model, name] = checkpoint_of(request.path);
        service.require_owner(owner, model);
        return service.delete_checkpoint(fmt::format("tinker://{}/{}", model, name));
      });
  post("asample", &Service::asample);
  post("encode", &Service::encode);
  post("decode", &Service::decode);
  add("GET", "flags",
      [&service](const HttpRequest&, const std::string&) { return service.flags(); });
  all.emplace_back(
      "POST", std::string(kRoot) + "retrieve_future", RouteClass::kProbe,
      [&service, keys](HttpExchange& exchange) { return retrieve(service, *keys, exchange); });
  return all;
}

}  // namespace

TinkerServer::TinkerServer(net::HttpServerConfig config, std::vector<std::string> keys,
                           Service& service)
    : service_(service),
      server_(std::move(config), routes(service, std::make_shared<const Keys>(std::move(keys)))) {}

void TinkerServer::stop() {
  server_.stop(kLongestStop);
  // They hold timers of the server's threads.
  service_.futures().drop_calls();
}

}  // namespace slime::tinker
