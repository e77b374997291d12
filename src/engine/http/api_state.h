#pragma once

/// What the routes of one server share.

#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <ctime>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine/client.h"
#include "engine/http/served_model.h"
#include "net/http_exchange.h"

namespace slime::engine {

/// The words clients gave to weight versions ("weight_version": "step-7"). Any thread.
class VersionNames {
 public:
  explicit VersionNames(std::string of_loaded_checkpoint);
  void set(WeightVersion version, std::string name);
  /// The given name, or the number.
  std::string name_of(WeightVersion version) const;

 private:
  mutable std::mutex mutex_;
  std::map<WeightVersion, std::string> names_;  // guarded by mutex_; the newest few
};

/// Totals since the start, for /metrics.
struct ApiCounters {
  std::atomic<std::int64_t> num_requests{0};
  std::atomic<std::int64_t> num_aborted{0};
  std::atomic<std::int64_t> num_prompt_tokens{0};
  std::atomic<std::int64_t> num_cached_tokens{0};
  std::atomic<std::int64_t> num_generated_tokens{0};

  void add(const GenerateUpdate& last_update, std::int64_t num_output);
};

struct ApiOptions {
  bool incremental_streaming_output = false;
  std::string weight_version = "default";      // the name of the loaded checkpoint
  std::chrono::seconds watchdog_timeout{300};  // a step that takes longer means a wedged engine
  std::int64_t max_running_requests = 0;       // for /server_info
  std::uint64_t random_seed = 0;               // idem
};

struct ApiState {
  ApiState(EngineClient& engine_, const ServedModel& model_, ApiOptions options_)
      : engine(engine_),
        model(model_),
        options(std::move(options_)),
        versions(options.weight_version) {}

  EngineClient& engine;
  const ServedModel& model;
  const ApiOptions options;
  VersionNames versions;
  ApiCounters counters;
  const std::int64_t start_unix_seconds = std::time(nullptr);
  /// Control calls wait for the engine here and not on the connections' threads.
  boost::asio::thread_pool control_threads{4};
};

/// A handler that computes its answer on a control thread, where it may block.
net::HttpHandler answer_on_control_thread(
    ApiState& state, std::function<net::HttpResponse(const net::HttpRequest&)> answer);

/// The tables of routes, one per file. `state` outlives the server that uses them.
void add_generate_routes(ApiState& state, std::vector<net::HttpRoute>& routes);
void add_openai_routes(ApiState& state, std::vector<net::HttpRoute>& routes);
void add_control_routes(ApiState& state, std::vector<net::HttpRoute>& routes);
void add_information_routes(ApiState& state, std::vector<net::HttpRoute>& routes);

}  // namespace slime::engine
