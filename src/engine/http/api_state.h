#pragma once

/// State shared by the routes of one server.

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/error.h"
#include "engine/client.h"
#include "engine/http/request_body.h"
#include "engine/http/request_metrics.h"
#include "engine/http/response_memory.h"
#include "engine/http/served_model.h"
#include "engine/sessions/session_store.h"
#include "net/http_exchange.h"

namespace slime::engine {

// What every table of routes speaks of.
using net::HttpExchange;
using net::HttpRequest;
using net::HttpResponse;
using net::RouteClass;
using net::Task;

/// The words clients gave to weight versions ("weight_version": "step-7"). Any thread.
class VersionNames {
 public:
  explicit VersionNames(std::string of_loaded_checkpoint);
  /// Before the first token of that version: answers ask at any time.
  void set(WeightVersion version, std::string name);
  /// An update that failed: its number is used again.
  void forget(WeightVersion version);
  /// The given name; of weights that a trainer brings, whose versions are its own, the number.
  std::string name_of(WeightVersion version) const;

 private:
  mutable std::mutex mutex_;
  std::map<WeightVersion, std::string> names_;  // guarded by mutex_; the newest few
};

/// Where the served weights came from, for /model_info: update_weights_from_disk may name another
/// folder than the server was started with. Any thread.
class WeightsFolder {
 public:
  explicit WeightsFolder(std::string loaded) : path_(std::move(loaded)) {}
  void set(std::string path) {
    const std::lock_guard lock(mutex_);
    path_ = std::move(path);
  }
  std::string path() const {
    const std::lock_guard lock(mutex_);
    return path_;
  }

 private:
  mutable std::mutex mutex_;
  std::string path_;  // guarded by mutex_; as it was named
};

struct ApiOptions {
  bool incremental_streaming_output = false;
  std::string weight_version = "default";      // the name of the loaded checkpoint
  std::chrono::seconds watchdog_timeout{300};  // a step that takes longer means a wedged engine
  std::int64_t max_running_requests = 0;       // for /server_info
  std::uint64_t random_seed = 0;               // idem
  int tp_size = 1;                             // idem: the ranks that share the model
  bool has_gpu = false;
  std::filesystem::path profile_directory;  // of /start_profile; empty: none are written
  /// What answers in the making may hold, one call's and all together (response_memory.h).
  std::size_t response_limit_bytes = std::size_t{1} << 30;
  std::size_t all_responses_limit_bytes = std::size_t{4} << 30;
  SessionLimits sessions = {};
  /// Chat requests that belong to no session are refused.
  bool requires_sessions = false;
};

struct ApiState {
  ApiState(EngineClient& engine_, const ServedModel& model_, ApiOptions options_)
      : engine(engine_),
        model(model_),
        options(std::move(options_)),
        versions(options.weight_version),
        weights_folder(model_.path.string()),
        responses(options.response_limit_bytes, options.all_responses_limit_bytes),
        sessions(model_, options.sessions) {}

  EngineClient& engine;
  const ServedModel& model;
  const ApiOptions options;
  VersionNames versions;
  WeightsFolder weights_folder;
  RequestMetrics metrics;
  ResponseMemory responses;
  SessionStore sessions;
  /// Of /health_generate: clients that do not read their answers say nothing about the engine, so a
  /// probe, whose answer is one token, needs none of what they hold.
  ResponseMemory probes{std::numeric_limits<std::size_t>::max(),
                        std::numeric_limits<std::size_t>::max()};
  const std::int64_t start_unix_seconds = std::time(nullptr);
  /// Control calls wait for the engine here and not on the connections' threads. None of them waits
  /// for anything else: an abort must not stand behind calls that wait for it.
  boost::asio::thread_pool control_threads{4};
  /// Updates of the weights, one after the other: each reads a checkpoint and has a version of its
  /// own.
  boost::asio::thread_pool weights_thread{1};
  /// Traces begin and end on one thread.
  boost::asio::thread_pool profile_thread{1};
  /// Of that thread, when the server ends: a trace that outlives it ends the program with a signal.
  std::function<void()> end_profile;
  /// Large requests are parsed and tokenised here, and chat templates, which are programs, run here.
  boost::asio::thread_pool parse_threads{2};
  /// What waits for those threads after this is not begun any more: the server ends.
  std::atomic<std::chrono::steady_clock::time_point> ends_at{
      std::chrono::steady_clock::time_point::max()};

  void join();
};

/// Bodies up to this size are parsed and tokenised on their connection's thread, within about ten
/// milliseconds.
inline constexpr std::size_t kSmallBodyBytes = 64 << 10;

template <typename T>
net::Task<T> compute(std::function<T()> body) {
  co_return body();
}

/// `body` on a thread of `pool`, where it may block; the caller goes on on its own executor.
/// Exceptions travel along.
template <typename T>
net::Task<T> compute_on(boost::asio::thread_pool& pool, std::function<T()> body) {
  co_return co_await boost::asio::co_spawn(pool.get_executor(), compute<T>(std::move(body)),
                                           boost::asio::use_awaitable);
}

/// A handler that computes its answer on a thread of `pool`.
net::HttpHandler answer_on(boost::asio::thread_pool& pool,
                           std::function<net::HttpResponse(const net::HttpRequest&)> answer);

/// The request's body as a call. Takes the body out of `request`. Throws ConfigError.
template <typename Call>
net::Task<Call> parse_call(ApiState& state, net::HttpRequest& request,
                           Call (*parse)(const json::object&, const ServedModel&)) {
  std::string body = std::exchange(request.body, {});
  if (body.size() <= kSmallBodyBytes) co_return parse(parse_body(body), state.model);
  std::function<Call()> work = [&state, parse, body = std::move(body)] {
    if (std::chrono::steady_clock::now() > state.ends_at.load())
      throw ConfigError("the server is stopping");
    return parse(parse_body(body), state.model);
  };
  co_return co_await compute_on(state.parse_threads, std::move(work));
}

inline net::HttpResponse json_response(const json::value& body, int status = 200) {
  return {.status = status, .body = json_text(body)};
}

/// The tables of routes, one per file. `state` outlives the server that uses them.
void add_generate_routes(ApiState& state, std::vector<net::HttpRoute>& routes);
void add_token_routes(ApiState& state, std::vector<net::HttpRoute>& routes);
void add_responses_routes(ApiState& state, std::vector<net::HttpRoute>& routes);
void add_anthropic_routes(ApiState& state, std::vector<net::HttpRoute>& routes);
void add_openai_routes(ApiState& state, std::vector<net::HttpRoute>& routes);
void add_control_routes(ApiState& state, std::vector<net::HttpRoute>& routes);
void add_adapter_routes(ApiState& state, std::vector<net::HttpRoute>& routes);
void add_weights_routes(ApiState& state, std::vector<net::HttpRoute>& routes);
void add_weight_tensor_routes(ApiState& state, std::vector<net::HttpRoute>& routes);
void add_profile_routes(ApiState& state, std::vector<net::HttpRoute>& routes);
void add_information_routes(ApiState& state, std::vector<net::HttpRoute>& routes);
void add_text_routes(ApiState& state, std::vector<net::HttpRoute>& routes);
void add_other_routes(std::vector<net::HttpRoute>& routes);
/// After the routes of the chat protocols, which it also serves below /sessions/NAME.
void add_session_routes(ApiState& state, std::vector<net::HttpRoute>& routes);

}  // namespace slime::engine
