/// Routes that change what the server does: abort, pause, flush, memory. Bodies and replies: reference
/// sglang.md 1.3.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <string_view>

#include "core/error.h"
#include "core/json.h"
#include "engine/http/api_state.h"
#include "engine/http/request_body.h"

namespace slime::engine {
namespace {

constexpr double kMaxFlushWaitSeconds = 600;
constexpr std::chrono::milliseconds kFlushPoll{50};

// Fields of each body. Those that are read come first; the others are SGLang's and change nothing
// here: one process, no allocator's cache to empty, CUDA graphs that read the weights where they
// are, a KV cache whose treatment a flag decides (docs/how/engine_client.md).
constexpr auto kAbortFields =
    std::to_array<std::string_view>({"rid", "abort_all", "abort_message", "finished_reason"});
constexpr auto kPauseFields = std::to_array<std::string_view>({"mode"});
constexpr auto kContinueFields = std::to_array<std::string_view>({"torch_empty_cache"});
constexpr auto kMemoryFields = std::to_array<std::string_view>({"tags"});

/// `done`, or what kept the engine from it.
HttpResponse answer_for(const Expected<void>& result, HttpResponse done) {
  return result ? std::move(done) : net::error_response(503, result.error().message);
}

HttpResponse abort_request(ApiState& state, const HttpRequest& request) {
  const json::object body = parse_optional_body(request.body);
  std::vector<std::string> problems;
  FieldReader fields(body, "", problems);
  const bool all = fields.boolean("abort_all").value_or(false);
  const std::string rid = fields.text("rid", 256).value_or("");
  fields.refuse_unknown(kAbortFields);
  require_none(problems);
  if (!all && rid.empty()) throw ConfigError("rid or abort_all must be given");
  // SGLang's rule: the samples of "x" are called "x_0", "x_1", ..., and "x" ends them all.
  return answer_for(all ? state.engine.abort_all() : state.engine.abort_prefix(rid),
                    {.content_type = ""});
}

HttpResponse pause_generation(ApiState& state, const HttpRequest& request) {
  const json::object body = parse_optional_body(request.body);
  std::vector<std::string> problems;
  FieldReader fields(body, "", problems);
  const std::string mode = fields.text("mode", 32).value_or("abort");
  if (mode != "abort" && mode != "retract" && mode != "in_place") {
    fields.note("mode", "must be \"abort\", \"retract\" or \"in_place\"");
  }
  fields.refuse_unknown(kPauseFields);
  require_none(problems);
  return answer_for(
      state.engine.pause(mode == "abort"     ? PauseMode::kAbort
                         : mode == "retract" ? PauseMode::kRetract
                                             : PauseMode::kInPlace),
      json_response({{"message", "generation is paused (" + mode + ")"}, {"status", "ok"}}));
}

HttpResponse continue_generation(ApiState& state, const HttpRequest& request) {
  const json::object body = parse_optional_body(request.body);
  std::vector<std::string> problems;
  const FieldReader fields(body, "", problems);
  fields.boolean("torch_empty_cache");
  fields.refuse_unknown(kContinueFields);
  require_none(problems);
  return answer_for(state.engine.resume(),
                    json_response({{"message", "generation continues"}, {"status", "ok"}}));
}

std::chrono::duration<double> flush_timeout_of(const HttpRequest& request) {
  double seconds = 0;
  if (const auto text = request.query_value("timeout")) {
    char* end = nullptr;
    seconds = std::strtod(text->c_str(), &end);
    if (text->empty() || *end != '\0' || !(seconds >= 0) || seconds > kMaxFlushWaitSeconds) {
      throw ConfigError(
          fmt::format("timeout must be a number of seconds up to {}", kMaxFlushWaitSeconds));
    }
  }
  return std::chrono::duration<double>(seconds);
}

/// SGLang's has no fields; who sends one meant something by it.
void check_flush_body(const HttpRequest& request) {
  const json::object body = parse_optional_body(request.body);
  std::vector<std::string> problems;
  const FieldReader fields(body, "", problems);
  if (body.contains("timeout"))
    fields.note("timeout", "belongs to the address: /flush_cache?timeout=SECONDS");
  fields.refuse_unknown(std::to_array<std::string_view>({"timeout"}));
  require_none(problems);
}

/// Waits on the connection, not on a control thread: whoever ends the requests needs one.
Task<void> flush_cache(ApiState& state, HttpExchange& exchange) {
  const auto deadline = std::chrono::steady_clock::now() + flush_timeout_of(exchange.request);
  check_flush_body(exchange.request);
  const auto timer = std::make_shared<boost::asio::steady_timer>(exchange.executor());
  exchange.on_disconnect([timer] { timer->cancel(); });
  HttpResponse response{.body = "The cache is flushed.\n", .content_type = "text/plain"};
  for (;;) {
    std::function<Expected<bool>()> flush = [&engine = state.engine] {
      return engine.flush_cache();
    };
    const Expected<bool> flushed = co_await compute_on(state.control_threads, std::move(flush));
    if (!flushed) response = net::error_response(503, flushed.error().message);
    if (!flushed || *flushed) break;
    if (!exchange.is_connected() || std::chrono::steady_clock::now() >= deadline) {
      response.status = 400;
      response.body = "The cache was not flushed: requests are running or waiting.\n";
      break;
    }
    timer->expires_after(kFlushPoll);
    boost::system::error_code woken;
    co_await timer->async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, woken));
  }
  co_await exchange.send(std::move(response));
}

/// Whether a call about memory is about keys and values. Weights stay where they are, because who
/// trains owns them, and recorded steps take next to nothing: their tags have nothing to do.
bool names_cache(const HttpRequest& request) {
  const json::object body = parse_optional_body(request.body);
  FieldReader(body, "").refuse_unknown(kMemoryFields);
  const json::value* tags = body.if_contains("tags");
  if (tags == nullptr || tags->is_null()) return true;
  bool found = false;
  if (!tags->is_array()) throw ConfigError("tags must be a list of words");
  for (const json::value& tag : tags->get_array()) {
    const std::string word = tag.is_string() ? std::string(tag.get_string()) : "";
    if (word != "kv_cache" && word != "weights" && word != "cuda_graph")
      throw ConfigError("tags must be among \"kv_cache\", \"weights\" and \"cuda_graph\"");
    found |= word == "kv_cache";
  }
  return found;
}

HttpResponse release_memory(ApiState& state, const HttpRequest& request) {
  return answer_for(names_cache(request) ? state.engine.sleep() : Expected<void>{},
                    json_response(nullptr));
}

HttpResponse resume_memory(ApiState& state, const HttpRequest& request) {
  return answer_for(names_cache(request) ? state.engine.wake() : Expected<void>{},
                    json_response(nullptr));
}

}  // namespace

void add_control_routes(ApiState& state, std::vector<net::HttpRoute>& routes) {
  using Answer = HttpResponse (*)(ApiState&, const HttpRequest&);
  const auto add = [&](const char* path, Answer answer) {
    routes.emplace_back(
        "POST", path, RouteClass::kControl,
        answer_on(state.control_threads,
                  [&state, answer](const HttpRequest& request) { return answer(state, request); }));
  };
  add("/abort_request", abort_request);
  add("/pause_generation", pause_generation);
  add("/continue_generation", continue_generation);
  add("/release_memory_occupation", release_memory);
  add("/resume_memory_occupation", resume_memory);
  for (const char* method : {"GET", "POST"}) {
    routes.emplace_back(method, "/flush_cache", RouteClass::kControl,
                        [&state](HttpExchange& exchange) { return flush_cache(state, exchange); });
  }
}

}  // namespace slime::engine
