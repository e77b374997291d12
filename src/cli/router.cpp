#include "cli/router.h"

#include <fmt/format.h>
#include <signal.h>

#include <array>
#include <cstdio>
#include <random>

#include "cli/options.h"
#include "cli/serving.h"
#include "core/error.h"
#include "core/safe_text.h"
#include "gateway/gateway.h"

namespace slime::cli {
namespace {

constexpr std::chrono::seconds kRouterStopGrace{10};

struct RouterOptions {
  std::vector<std::string> worker_urls;
  std::string policy = "cache_aware";
  std::string api_key_file;
  std::string admin_api_key_file;
  bool disable_retries = false;
  bool disable_circuit_breaker = false;
  bool disable_health_check = false;
  int64_t max_payload_size = int64_t{64} << 20;
  int64_t max_bodies_mib = 1 << 10;
  double request_timeout_s = 14'400;
  double connect_timeout_s = 5;
  double queue_timeout_s = 60;
  int64_t retry_initial_backoff_ms = 50;
  int64_t retry_max_backoff_ms = 5'000;
  double cb_timeout_s = 60;
  double cb_window_s = 120;
  double health_check_timeout_s = 5;
  double health_check_interval_s = 10;
  int64_t max_tree_size = int64_t{64} << 20;
  gateway::GatewayConfig gateway;
};

/// Flags of SGLang's router that published commands contain and that have nothing to switch here.
struct RouterFlag {
  const char* name;  // without dashes
  bool takes_value;
  const char* reason;
};
constexpr std::array kIgnoredRouterFlags = std::to_array<RouterFlag>({
    {"log-level", true, "one line is printed when a worker's state changes, and nothing else"},
    {"log-dir", true, "lines go to standard error"},
    {"prometheus-port", true, "/metrics is on --port"},
    {"prometheus-host", true, "/metrics is on --host"},
    {"eviction-interval-secs", true, "prompts are forgotten by --max-tree-size"},
    {"eviction-interval", true, "prompts are forgotten by --max-tree-size"},
    {"worker-startup-timeout-secs", true, "the router starts at once; workers serve when healthy"},
    {"worker-startup-check-interval", true, "new workers are looked at twice a second"},
    {"model-path", true, "workers have the model"},
    {"tokenizer-path", true, "prompts are compared as they are sent"},
    {"reasoning-parser", true, "workers read their models' output"},
    {"tool-call-parser", true, "workers read their models' output"},
});
constexpr std::array kRefusedRouterFlags = std::to_array<RouterFlag>({
    {"api-key", true, "other users of this machine can read a command line; use --api-key-file"},
    {"pd-disaggregation", false, "workers do prefill and decode themselves"},
    {"prefill", true, "workers do prefill and decode themselves"},
    {"decode", true, "workers do prefill and decode themselves"},
    {"service-discovery", false, "name workers by --worker-urls or POST /workers"},
    {"dp-aware", false, "start one server for each rank and name them all"},
    {"rate-limit-tokens-per-second", true, "--max-concurrent-requests limits requests"},
});

/// `--NAME` as SGLang's router has it, and `--router-NAME` as its launchers pass it on.
std::string both(const std::string& name) { return "--" + name + ",--router-" + name; }

void add_worker_options(CLI::App& app, RouterOptions& options) {
  app.add_option(both("worker-urls"), options.worker_urls,
                 "servers to send requests to, http://HOST:PORT each; POST /workers adds more");
  app.add_option(both("policy"), options.policy, "who gets a request: " + gateway::policy_names());
  gateway::PolicyConfig& policy = options.gateway.workers.policy;
  app.add_option(both("cache-threshold"), policy.cache_threshold,
                 "cache_aware: the share of a prompt that a worker has to know for it to count")
      ->check(finite_range(0, 1));
  app.add_option(both("balance-abs-threshold"), policy.balance_abs_threshold,
                 "cache_aware: load alone decides where it differs by more requests than this ...")
      ->check(CLI::NonNegativeNumber);
  app.add_option(both("balance-rel-threshold"), policy.balance_rel_threshold,
                 "... and by more than this factor")
      ->check(finite_range(1, 1e6));
  app.add_option(both("max-tree-size"), options.max_tree_size,
                 "cache_aware: bytes of prompts that are remembered, about")
      ->check(CLI::Range(int64_t{1} << 10, int64_t{1} << 40));
  gateway::HealthConfig& health = options.gateway.workers.health;
  app.add_flag(both("disable-health-check"), options.disable_health_check,
               "workers count as healthy");
  app.add_option(both("health-check-endpoint"), health.path, "path that answers 200");
  app.add_option(both("health-check-interval-secs"), options.health_check_interval_s,
                 "seconds between two checks of a worker")
      ->check(finite_range(0.05, 1e6));
  app.add_option(both("health-check-timeout-secs"), options.health_check_timeout_s,
                 "seconds for an answer")
      ->check(finite_range(0.05, 1e6));
  app.add_option(both("health-failure-threshold"), health.failures_to_leave,
                 "failed checks in a row after which a worker gets nothing")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option(both("health-success-threshold"), health.successes_to_return,
                 "good checks in a row after which it gets requests again")
      ->check(CLI::Range(1, 1 << 20));
  gateway::BreakerConfig& breaker = options.gateway.workers.breaker;
  app.add_flag(both("disable-circuit-breaker"), options.disable_circuit_breaker,
               "failures of requests take no worker out");
  app.add_option(both("cb-failure-threshold"), breaker.failures_to_open,
                 "requests in a row that fail in a worker until it gets nothing for a while")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option(both("cb-success-threshold"), breaker.successes_to_close,
                 "trials in a row that succeed until it gets everything again")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option(both("cb-timeout-duration-secs"), options.cb_timeout_s, "length of that while")
      ->check(finite_range(0.05, 1e6));
  app.add_option(both("cb-window-duration-secs"), options.cb_window_s,
                 "failures longer ago than this do not count")
      ->check(finite_range(0.05, 1e6));
}

void add_request_options(CLI::App& app, RouterOptions& options) {
  gateway::ProxyConfig& proxy = options.gateway.proxy;
  app.add_flag(both("disable-retries"), options.disable_retries,
               "each request goes to one worker alone");
  app.add_option(both("retry-max-retries"), proxy.retry.max_retries,
                 "further tries of a request of which nothing has been answered")
      ->check(CLI::Range(0, 1000));
  app.add_option(both("retry-initial-backoff-ms"), options.retry_initial_backoff_ms,
                 "pause when all workers were tried")
      ->check(CLI::Range(0, 1 << 24));
  app.add_option(both("retry-max-backoff-ms"), options.retry_max_backoff_ms, "longest such pause")
      ->check(CLI::Range(0, 1 << 24));
  app.add_option(both("retry-backoff-multiplier"), proxy.retry.pause_factor,
                 "factor from one pause to the next")
      ->check(finite_range(1, 100));
  app.add_option(both("retry-jitter-factor"), proxy.retry.jitter, "pauses differ by this share")
      ->check(finite_range(0, 1));
  app.add_option(both("request-timeout-secs"), options.request_timeout_s,
                 "seconds until the end of an answer")
      ->check(finite_range(0.05, 1e7));
  app.add_option(both("connect-timeout-secs"), options.connect_timeout_s,
                 "seconds until a worker takes a connection")
      ->check(finite_range(0.05, 1e6));
  app.add_option(both("max-concurrent-requests"), proxy.admission.max_running,
                 "requests under way; further ones wait; -1: any number")
      ->check(CLI::Range(-1, 1 << 24));
  app.add_option(both("queue-size"), proxy.admission.max_waiting,
                 "requests that wait; further ones get 429")
      ->check(CLI::Range(0, 1 << 24));
  app.add_option(both("queue-timeout-secs"), options.queue_timeout_s,
                 "seconds that a request waits until it gets 429")
      ->check(finite_range(0, 1e6));
  app.add_option(both("max-payload-size"), options.max_payload_size, "bytes of one request's body")
      ->check(CLI::Range(int64_t{1} << 10, int64_t{1} << 32));
  app.add_option("--max-bodies-mib", options.max_bodies_mib,
                 "memory that all bodies together may take")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option(both("request-id-headers"), proxy.request_id_headers,
                 "headers that name a request; they are passed on, and the first is added where a "
                 "request has none");
}

void add_server_options(CLI::App& app, RouterOptions& options) {
  net::HttpServerConfig& http = options.gateway.http;
  app.add_option("--host,--router-host", http.host,
                 "address to listen on; other than loopback needs a key");
  app.add_option("--port,--router-port", http.port, "port; 0 picks a free one");
  app.add_option("--api-key-file", options.api_key_file,
                 "file with the key that clients send as a bearer token (or set SLIME_API_KEY); "
                 "workers get it as it was sent");
  app.add_option("--admin-api-key-file", options.admin_api_key_file,
                 "file with a key of its own for routes that change workers (or set "
                 "SLIME_ADMIN_API_KEY)");
  http.access.has_host_flag = true;
  app.add_option(both("cors-allowed-origins") + ",--allowed-host", http.access.allowed_hosts,
                 "further names in Host and Origin of requests");
  app.add_option("--max-connections", http.max_connections, "open connections of clients")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--http-threads", http.num_threads, "threads that pass bytes on")
      ->check(CLI::Range(1, 64));
  for (const RouterFlag& flag : kIgnoredRouterFlags) {
    const auto warn = [flag] {
      fmt::print(stderr, "slime router: --{} has no effect: {}\n", flag.name, flag.reason);
    };
    app.add_option_function<std::string>(
        both(flag.name), [warn](const std::string&) { warn(); }, "no effect here");
  }
  for (const RouterFlag& flag : kRefusedRouterFlags) {
    const auto refuse = [flag] {
      throw CLI::ValidationError(fmt::format("--{}", flag.name), flag.reason);
    };
    if (flag.takes_value) {
      app.add_option_function<std::vector<std::string>>(
          both(flag.name), [refuse](const std::vector<std::string>&) { refuse(); }, "refused");
    } else {
      app.add_flag_callback(both(flag.name), refuse, "refused");
    }
  }
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

/// What the options say in other units.
gateway::GatewayConfig config_of(RouterOptions& options) {
  gateway::GatewayConfig& config = options.gateway;
  const auto kind = gateway::policy_of(options.policy);
  if (!kind) {
    throw ConfigError(fmt::format("--policy {}: there is none of this name; there are {}",
                                  options.policy, gateway::policy_names()));
  }
  config.workers.policy.kind = *kind;
  config.workers.policy.max_tree_bytes = static_cast<std::size_t>(options.max_tree_size);
  config.workers.seed = std::random_device{}();
  config.workers.breaker.is_on = !options.disable_circuit_breaker;
  config.workers.breaker.open_time = milliseconds_of(options.cb_timeout_s);
  config.workers.breaker.failure_window = milliseconds_of(options.cb_window_s);
  config.workers.health.is_on = !options.disable_health_check;
  config.workers.health.interval = milliseconds_of(options.health_check_interval_s);
  config.workers.health.timeout = milliseconds_of(options.health_check_timeout_s);
  if (!config.workers.health.path.starts_with('/') ||
      config.workers.health.path.find_first_of(" \r\n") != std::string::npos) {
    throw ConfigError("--health-check-endpoint: a path begins with a slash and has no spaces");
  }
  if (options.disable_retries) config.proxy.retry.max_retries = 0;
  config.proxy.retry.first_pause = std::chrono::milliseconds(options.retry_initial_backoff_ms);
  config.proxy.retry.longest_pause = std::chrono::milliseconds(options.retry_max_backoff_ms);
  config.proxy.request_timeout = milliseconds_of(options.request_timeout_s);
  config.proxy.connect_timeout = milliseconds_of(options.connect_timeout_s);
  config.proxy.admission.max_wait = milliseconds_of(options.queue_timeout_s);
  for (const std::string& name : config.proxy.request_id_headers) {
    if (!net::is_header_name(name))
      throw ConfigError(fmt::format("--request-id-headers {}: no name of a header", name));
  }
  config.http.body_limit_bytes = static_cast<std::size_t>(options.max_payload_size);
  config.http.all_bodies_limit_bytes = static_cast<std::size_t>(options.max_bodies_mib) << 20;
  config.http.access.api_key = read_key(options.api_key_file, "SLIME_API_KEY");
  config.http.access.admin_api_key = read_key(options.admin_api_key_file, "SLIME_ADMIN_API_KEY");
  return config;
}

// Not fmt::print, which throws when nobody reads.
void print_to(std::FILE* out, const std::string& line) {
  std::fputs(line.c_str(), out);
  std::fflush(out);
}

}  // namespace

int router(std::span<const std::string> arguments) {
  RouterOptions options;
  options.gateway.http.port = 30000;
  options.gateway.http.max_connections = 16384;
  CLI::App app("Passes requests on to several servers of SGLang's protocol.", "slime router");
  add_server_options(app, options);
  add_worker_options(app, options);
  add_request_options(app, options);
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  const gateway::GatewayConfig config = config_of(options);
  std::vector<gateway::WorkerAddress> addresses;
  std::vector<std::string> problems;
  for (const std::string& url : options.worker_urls) {
    const auto address = gateway::parse_worker_url(url);
    if (address) {
      addresses.push_back(*address);
    } else {
      problems.push_back("--worker-urls: " + address.error().message);
    }
  }
  if (!problems.empty()) throw ConfigError(problems);

  const sigset_t stop_signals = block_stop_signals();
  gateway::Gateway gateway(config, [](const std::string& line) {
    print_to(stderr, "slime router: " + safe_text(line) + "\n");
  });
  for (const gateway::WorkerAddress& address : addresses) {
    const auto added = gateway.workers().add(address);
    if (!added) throw ConfigError("--worker-urls: " + added.error().message);
  }
  gateway.start();
  print_to(stdout, fmt::format("ready: router at {} for {} workers, policy {}\n", gateway.url(),
                               addresses.size(), options.policy));

  int signal = 0;
  sigwait(&stop_signals, &signal);
  print_to(stderr, fmt::format("slime router: stopping; requests under way have {} s, a second "
                               "signal ends them now\n",
                               kRouterStopGrace.count()));
  end_at_next(stop_signals);
  gateway.stop(kRouterStopGrace);
  return 0;
}

}  // namespace slime::cli
