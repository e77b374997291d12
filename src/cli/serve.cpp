#include "cli/serve.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <thread>

#include "cli/device.h"
#include "cli/open_tokenizer.h"
#include "cli/options.h"
#include "cli/sampling_defaults.h"
#include "cli/serving.h"
#include "cluster/run_identity.h"
#include "core/calendar.h"
#include "core/clock.h"
#include "core/error.h"
#include "engine/chat/chat_model.h"
#include "engine/engine.h"
#include "engine/http/server.h"
#include "model/network.h"
#include "model/placement.h"
#include "roles/engine_ranks.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::cli {
namespace {

constexpr std::chrono::seconds kStopGrace{10};

/// What the command line says. Names are SGLang's where it has the setting.
struct ServeOptions {
  std::string model;
  std::string dtype = "auto";
  std::string served_model_name;
  std::string api_key_file;
  std::string admin_api_key_file;
  std::string sampling_defaults = "model";
  std::string chat_template;  // a file; empty: the model's own
  engine::ChatParsers parsers;
  bool names_reasoning_twice = false;
  std::optional<uint64_t> random_seed;
  std::vector<std::string> weight_roots;
  DeviceOptions device;
  int tp_size = 1;
  bool nccl_alone = false;
  bool disable_radix_cache = false;
  bool skip_tokenizer_init = false;
  int64_t response_limit_mib = 1 << 10;
  int64_t all_responses_limit_mib = 4 << 10;
  int64_t watchdog_timeout_s = 300;
  engine::EngineConfig engine;
  engine::ApiOptions api;
  net::HttpServerConfig http;
};

/// SGLang flags that published commands contain and that have nothing to switch here.
struct IgnoredFlag {
  const char* name;
  bool takes_value;
  const char* reason;
};
constexpr std::array kIgnoredFlags = std::to_array<IgnoredFlag>({
    {"--trust-remote-code", false, "no code of a model directory is ever run"},
    {"--skip-server-warmup", false, "there is no warm-up"},
    {"--enable-metrics", false, "/metrics is always on"},
    {"--disable-cuda-graph", false, "decode steps are recorded where there is a GPU"},
    {"--mem-fraction-static", true, "memory is set by --kv-cache-gib"},
    {"--log-level", true, "the server prints only what a person must know"},
});

void add_options(CLI::App& app, ServeOptions& options) {
  app.add_option("--model,--model-path", options.model,
                 "model directory (config.json, *.safetensors, tokenizer.json)")
      ->required();
  app.add_option("--host", options.http.host,
                 "address to listen on; other than loopback needs a key");
  app.add_option("--port", options.http.port, "port; 0 picks a free one");
  app.add_option("--dtype", options.dtype, "auto (as stored), float32, bfloat16 or float16");
  app.add_option("--served-model-name", options.served_model_name,
                 "name in /v1/models; default: the directory's");
  app.add_option("--api-key-file", options.api_key_file,
                 "file with the key that clients send as a bearer token (or set SLIME_API_KEY)");
  app.add_option(
      "--admin-api-key-file", options.admin_api_key_file,
      "file with a key of its own for routes that change the server (or set SLIME_ADMIN_API_KEY); "
      "where there is an API key the weights can be changed with this one alone");
  app.add_option_function<std::string>(
      "--api-key",
      [](const std::string&) {
        throw CLI::ValidationError(
            "--api-key", "other users of this machine can read a command line; use --api-key-file");
      },
      "refused: use --api-key-file");
  app.add_option("--context-length", options.engine.context_length,
                 "tokens of prompt and response; default: the model's")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--max-running-requests", options.engine.max_running_requests,
                 "requests decoded together")
      ->check(CLI::Range(1, 65536));
  app.add_option("--max-queued-requests", options.engine.max_queued_requests,
                 "requests that may wait")
      ->check(CLI::Range(1, 1 << 24));
  app.add_option("--chunked-prefill-size", options.engine.max_prefill_tokens,
                 "prompt tokens computed per step")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--kv-cache-dtype", options.engine.kv_cache_dtype,
                 "auto, bfloat16, float32 or (GPU) fp8_e4m3, which has no scales");
  add_device_options(app, options.device);
  app.add_option("--tp-size,--tensor-parallel-size,--tp", options.tp_size,
                 "processes that share the model, each with slices of its layers and their part of "
                 "keys and values; on GPUs one each")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--disable-custom-all-reduce", options.nccl_alone,
               "several GPUs: small sums go through NCCL, as large ones do");
  app.add_flag("--disable-radix-cache", options.disable_radix_cache,
               "do not reuse the prefixes of earlier prompts");
  app.add_flag("--enable-return-routed-experts", options.engine.records_experts,
               "record which experts tokens visit, for requests with return_routed_experts");
  app.add_option("--random-seed", options.random_seed,
                 "seed of requests without one; default: random");
  add_sampling_defaults(app, options.sampling_defaults);
  app.add_option("--chat-template", options.chat_template,
                 "file with a chat template to use in place of the model's")
      ->check(CLI::ExistingFile);
  app.add_option(
      "--tool-call-parser", options.parsers.tool_calls,
      "form of tool calls in the model's output, by SGLang's or vLLM's name; auto: that of "
      "the chat template; none: calls are content");
  app.add_option(
      "--reasoning-parser", options.parsers.reasoning,
      "form of thoughts in the model's output, by SGLang's or vLLM's name; auto: that of "
      "the chat template; none: thoughts are content");
  app.add_flag("--also-name-reasoning", options.names_reasoning_twice,
               "chat completions have thoughts as `reasoning`, vLLM's name, next to "
               "`reasoning_content`");
  app.add_flag("--incremental-streaming-output", options.api.incremental_streaming_output,
               "frames of a /generate stream hold only what is new");
  app.add_option("--weight-version", options.api.weight_version, "name of the loaded weights");
  app.add_option("--watchdog-timeout", options.watchdog_timeout_s,
                 "seconds without a step until /health answers 503")
      ->check(CLI::Range(1, 1 << 24));
  app.add_option(
      "--weights-root", options.weight_roots,
      "directory below which /update_weights_from_disk may read, besides the folder that holds the "
      "model's");
  app.add_flag("--skip-tokenizer-init", options.skip_tokenizer_init,
               "token ids in and out only; also where the model has no tokenizer");
  app.add_option("--response-limit-mib", options.response_limit_mib,
                 "memory that one call's answer may take; beyond it the call ends with 400")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--all-responses-limit-mib", options.all_responses_limit_mib,
                 "memory that all answers in the making may take; beyond it a call ends with 503")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--allowed-host", options.http.access.allowed_hosts,
                 "further name in Host and Origin of requests");
  app.add_option("--max-connections", options.http.max_connections, "open connections")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--http-threads", options.http.num_threads,
                 "threads that parse, tokenise and write")
      ->check(CLI::Range(1, 1024));
  for (const IgnoredFlag& flag : kIgnoredFlags) {
    const auto warn = [flag] {
      fmt::print(stderr, "slime serve: {} has no effect: {}\n", flag.name, flag.reason);
    };
    if (flag.takes_value) {
      app.add_option_function<std::string>(
          flag.name, [warn](const std::string&) { warn(); }, "no effect here");
    } else {
      app.add_flag_callback(flag.name, warn, "no effect here");
    }
  }
}

/// Null when the model has no chat template; then only the chat routes are missing.
std::shared_ptr<const engine::ChatModel> open_chat_model(const ServeOptions& options,
                                                         const text::Tokenizer& tokenizer) {
  try {
    auto chat =
        engine::load_chat_model({.directory = options.model,
                                 .template_file = options.chat_template,
                                 .now = [] { return local_time(SystemClock().unix_seconds()); },
                                 .parsers = options.parsers},
                                tokenizer);
    fmt::print(stderr, "slime serve: {}\n", chat->parser_names());
    return chat;
  } catch (const ConfigError& error) {
    if (!options.chat_template.empty()) throw;
    fmt::print(stderr, "slime serve: no /v1/chat/completions: {}\n", error.what());
    return nullptr;
  }
}

/// Flags of the chat routes, which need a tokenizer.
void tell_flags_without_chat(const ServeOptions& options) {
  const auto tell = [](const char* flag) {
    fmt::print(stderr, "slime serve: {} has no effect: no tokenizer, so no chat routes\n", flag);
  };
  if (options.parsers.tool_calls != "auto") tell("--tool-call-parser");
  if (options.parsers.reasoning != "auto") tell("--reasoning-parser");
  if (!options.chat_template.empty()) tell("--chat-template");
  if (options.names_reasoning_twice) tell("--also-name-reasoning");
}

std::vector<std::string> architectures_of(const model::ModelConfig& config) {
  std::vector<std::string> names;
  const json::value* list = config.raw.if_contains("architectures");
  if (list == nullptr || !list->is_array()) return names;
  for (const json::value& name : list->get_array()) {
    if (name.is_string()) names.emplace_back(name.get_string());
  }
  return names;
}

/// For what further ranks print, as long as they run: of one that fails the last lines are shown.
class LogFolder final {
 public:
  LogFolder() : path_((std::filesystem::temp_directory_path() / "slime_serve_XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr)
      throw ConfigError(fmt::format("{}: no folder for logs: {}", path_, std::strerror(errno)));
  }
  ~LogFolder() { remove(); }
  LogFolder(const LogFolder&) = delete;
  LogFolder& operator=(const LogFolder&) = delete;

  const std::string& path() const { return path_; }
  void remove() const {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }

 private:
  std::string path_;
};

/// The further ranks of an engine of several.
std::unique_ptr<roles::EngineRanks> start_ranks(const ServeOptions& options,
                                                const std::string& dtype,
                                                const model::ModelConfig& model, int num_threads,
                                                const LogFolder& logs, const Clock& clock) {
  roles::check_engine_ranks(model, options.tp_size, "--tp-size");
  const auto on_lost = [&logs](const std::string& why) {
    logs.remove();
    std::fputs(("slime serve: " + why + "\n").c_str(), stderr);
    std::_Exit(1);
  };
  constexpr auto kDeadline = std::chrono::minutes(10);
  return std::make_unique<roles::EngineRanks>(
      roles::EngineRanksConfig{
          .start = {.directory = options.model,
                    .device = options.device.device,
                    .dtype = dtype,
                    .loads_weights = true,
                    .nccl_alone = options.nccl_alone,
                    .num_ranks = options.tp_size,
                    .num_threads = num_threads,
                    .collective_milliseconds = std::chrono::milliseconds(kDeadline).count()},
          .identity = {.token = cluster::make_run_token()},
          .log_folder = logs.path(),
          .on_lost = on_lost},
      clock);
}

std::string directory_name(const std::filesystem::path& directory) {
  std::filesystem::path path = std::filesystem::absolute(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path.filename().string();
}

void print_ready(const engine::ServedModel& model, const std::string& url, bool needs_key,
                 double seconds) {
  const std::string key = needs_key ? " -H \"Authorization: Bearer $(cat KEY_FILE)\"" : "";
  // Not fmt::print, which throws when nobody reads.
  const auto print = [](const std::string& line) { std::fputs(line.c_str(), stdout); };
  print(
      fmt::format("ready: {} ({}) at {} after {:.1f} s\n", model.name, model.dtype, url, seconds));
  if (model.tokenizer == nullptr) {
    print(fmt::format(
        "try:   curl {}/generate{} -d '{{\"input_ids\": [1, 2, 3], \"sampling_params\": "
        "{{\"max_new_tokens\": 32}}}}'\n",
        url, key));
  } else if (model.chat != nullptr) {
    print(fmt::format(
        "try:   curl {}/v1/chat/completions{} -H 'Content-Type: application/json' "
        "-d '{{\"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}], \"max_tokens\": "
        "32}}'\n",
        url, key));
  } else {
    print(
        fmt::format("try:   curl {}/generate{} -d '{{\"text\": \"Hello\", \"sampling_params\": "
                    "{{\"max_new_tokens\": 32}}}}'\n",
                    url, key));
  }
  std::fflush(stdout);
}

}  // namespace

int serve(std::span<const std::string> arguments) {
  const SystemClock clock;
  const Clock::TimePoint start = clock.now();
  ServeOptions options;
  CLI::App app("Serves a model over HTTP: SGLang's routes and OpenAI's.", "slime serve");
  add_options(app, options);
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;

  options.http.access.api_key = read_key(options.api_key_file, "SLIME_API_KEY");
  options.http.access.admin_api_key = read_key(options.admin_api_key_file, "SLIME_ADMIN_API_KEY");
  sigset_t stop_signals = block_stop_signals();
  raise_descriptor_limit();

  if (options.nccl_alone && (options.tp_size == 1 || options.device.device != "cuda")) {
    std::fputs("slime serve: --disable-custom-all-reduce has no effect: no sums between GPUs\n",
               stderr);
  }
  engine::check_parsers(options.parsers);
  const std::filesystem::path directory = options.model;
  const model::ModelConfig config = model::read_model_config(directory);
  const std::string dtype = options.dtype == "auto" ? config.dtype : options.dtype;
  const auto tokenizer = options.skip_tokenizer_init ? nullptr : open_tokenizer(directory);
  if (tokenizer == nullptr) tell_flags_without_chat(options);
  std::optional<LogFolder> logs;
  std::unique_ptr<roles::EngineRanks> ranks;
  if (options.tp_size > 1) {
    logs.emplace();
    const int threads = std::max(1, at::get_num_threads() / options.tp_size);
    at::set_num_threads(threads);  // ranks of one host share its cores
    ranks = start_ranks(options, dtype, config, threads, *logs, clock);
    options.engine.mesh = &ranks->mesh();
  }
  const auto network = model::load_network(
      directory, model::precision_on(options.device.device, dtype), *options.engine.mesh);

  options.engine.kv_cache_bytes = kv_cache_bytes_of(options.device);
  options.engine.enable_prefix_cache = !options.disable_radix_cache;
  options.engine.seed = options.random_seed.value_or(std::random_device{}());
  if (tokenizer != nullptr) {
    options.engine.token_bytes = [&tokenizer](TokenId id) { return tokenizer->token_bytes(id); };
    options.engine.eos_token_ids = told_end_tokens(config, *tokenizer);
  }
  engine::Engine engine(*network, options.engine, clock,
                        ranks ? ranks->make_runner() : engine::make_step_runner);

  engine::ServedModel served{
      .name =
          options.served_model_name.empty() ? directory_name(directory) : options.served_model_name,
      .path = directory,
      .dtype = dtype,
      .model_type = config.model_type,
      .architectures = architectures_of(config),
      .context_length = engine.max_request_tokens(),
      .returns_routed_experts = options.engine.records_experts,
      .routed_layers = config.num_layers,
      .experts_per_token = config.experts.per_token,
      .vocab_size = config.vocab_size,
      .sampling_defaults = sampling_defaults_by(options.sampling_defaults, directory),
      .tokenizer = tokenizer.get(),
      .longest_token_bytes = tokenizer == nullptr ? 0 : engine::longest_token_bytes(*tokenizer),
      .chat = tokenizer == nullptr ? nullptr : open_chat_model(options, *tokenizer),
      .names_reasoning_twice = options.names_reasoning_twice,
      .weight_roots = {engine::default_weight_root(directory)},
  };
  served.weight_roots.insert(served.weight_roots.end(), options.weight_roots.begin(),
                             options.weight_roots.end());
  options.api.watchdog_timeout = std::chrono::seconds(options.watchdog_timeout_s);
  options.api.max_running_requests = options.engine.max_running_requests;
  options.api.random_seed = options.engine.seed;
  options.api.response_limit_bytes = static_cast<std::size_t>(options.response_limit_mib) << 20;
  options.api.all_responses_limit_bytes = static_cast<std::size_t>(options.all_responses_limit_mib)
                                          << 20;

  engine::ApiServer server(engine, served, options.http, options.api);
  server.start();
  print_ready(served, server.url(), !options.http.access.api_key.empty(),
              seconds_between(start, clock.now()));

  int signal = 0;
  sigwait(&stop_signals, &signal);
  // Not fmt::print, which throws when standard error is gone.
  std::fputs(fmt::format("slime serve: stopping; running requests have {} s, a second signal ends "
                         "them now\n",
                         kStopGrace.count())
                 .c_str(),
             stderr);
  sigdelset(&stop_signals, SIGHUP);  // of one terminal's end several may tell
  std::thread([stop_signals] {
    int second = 0;
    sigwait(&stop_signals, &second);
    std::_Exit(128 + second);
  }).detach();
  static_cast<void>(engine.resume());  // a paused engine would never finish what runs
  server.stop(kStopGrace);
  return 0;
}

}  // namespace slime::cli
