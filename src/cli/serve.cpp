#include "cli/serve.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>

#include "cli/by_name.h"
#include "cli/device.h"
#include "cli/grammar_options.h"
#include "cli/open_tokenizer.h"
#include "cli/options.h"
#include "cli/sampling_defaults.h"
#include "cli/serve_options.h"
#include "cli/serving.h"
#include "cluster/run_identity.h"
#include "core/calendar.h"
#include "core/clock.h"
#include "core/divide_up.h"
#include "core/draft_words.h"
#include "core/error.h"
#include "core/folder_name.h"
#include "core/safe_text.h"
#include "core/temporary_folder.h"
#include "engine/cache_shape.h"
#include "engine/chat/chat_model.h"
#include "engine/engine.h"
#include "engine/http/server.h"
#include "engine/ranks/rank_adapters.h"
#include "engine/served_adapters.h"
#include "engine/state_pool.h"
#include "engine/step_runner.h"
#include "kernels/cpu/paged_attention.h"
#include "model/eagle3.h"
#include "model/network.h"
#include "model/placement.h"
#include "roles/engine_ranks.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::cli {
namespace {

constexpr std::chrono::seconds kStopGrace{10};

const std::string& tokenizer_of(const ServeOptions& options) {
  return options.tokenizer.empty() ? options.model : options.tokenizer;
}

/// Null when the model has no chat template; then only the chat routes are missing.
std::shared_ptr<const engine::ChatModel> open_chat_model(const ServeOptions& options,
                                                         const text::Tokenizer& tokenizer) {
  try {
    auto chat =
        engine::load_chat_model({.directory = tokenizer_of(options),
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

/// The further ranks of an engine of several. What they print is in `logs`: of one that fails the last lines are shown.
std::unique_ptr<roles::EngineRanks> start_ranks(const ServeOptions& options,
                                                const std::string& dtype,
                                                const model::ModelConfig& model, int num_threads,
                                                const TemporaryFolder& logs, const Clock& clock) {
  roles::check_engine_ranks(model, options.tp_size, "--tp-size");
  const auto on_lost = [&logs](const std::string& why) {
    logs.remove();
    std::fputs(("slime serve: " + safe_text(why) + "\n").c_str(), stderr);
    std::_Exit(1);
  };
  constexpr auto kDeadline = std::chrono::minutes(10);
  return std::make_unique<roles::EngineRanks>(
      roles::EngineRanksConfig{
          .start = {.directory = options.model,
                    .device = options.device.device,
                    .dtype = dtype,
                    .loads_weights = true,
                    .computes_drafts = options.engine.drafts.layer,
                    .nccl_alone = options.nccl_alone,
                    .num_ranks = options.tp_size,
                    .num_threads = num_threads,
                    .collective_milliseconds = std::chrono::milliseconds(kDeadline).count()},
          .identity = {.token = cluster::make_run_token()},
          .log_folder = logs.path(),
          .on_lost = on_lost},
      clock);
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

/// What keys and values of so many tokens take, and the states of requests.
int64_t bytes_of_tokens(const engine::EngineConfig& config, model::Network& network,
                        int64_t num_tokens) {
  const engine::PageWindow window = engine::page_window(config, network);
  const int64_t pages = divide_up<int64_t>(num_tokens, kernels::kPageTokens) * window.num_tables();
  return pages * engine::cache_page_bytes(config, network) +
         engine::num_states_of(config, network) * engine::state_bytes(network.blocks());
}

/// A key of the command line counts before one of a file or the environment.
void read_keys(ServeOptions& options) {
  net::AccessRules& access = options.http.access;
  if (access.api_key.empty()) access.api_key = read_key(options.api_key_file, "SLIME_API_KEY");
  if (access.admin_api_key.empty())
    access.admin_api_key = read_key(options.admin_api_key_file, "SLIME_ADMIN_API_KEY");
}

/// Those that requests may name; null: they may name none. `ranks`: null where there is one.
std::unique_ptr<engine::ServedAdapters> open_adapters(const ServeOptions& options,
                                                      model::Network& network,
                                                      roles::EngineRanks* ranks) {
  const bool is_served = options.enable_lora || !options.lora_paths.empty();
  if (!is_served && options.adapter.empty()) return nullptr;
  const comm::Mesh& mesh = *options.engine.mesh;
  engine::Followers* followers = ranks == nullptr ? nullptr : &ranks->followers();
  if (!is_served) {
    engine::load_adapter_on_ranks(network, options.adapter, mesh, followers);
    return nullptr;
  }
  if (!options.adapter.empty())
    throw ConfigError("--adapter: all requests take it; requests name those of --lora-paths");
  auto adapters =
      std::make_unique<engine::ServedAdapters>(network, options.max_loaded_loras, mesh, followers);
  for (const std::string& word : options.lora_paths) {
    const std::size_t equals = word.find('=');
    const std::string path = equals == std::string::npos ? word : word.substr(equals + 1);
    const std::string name =
        equals == std::string::npos
            ? std::filesystem::path(path).lexically_normal().filename().string()
            : word.substr(0, equals);
    const auto loaded = adapters->load(name, path, /*is_pinned=*/true, /*replaces=*/false);
    if (!loaded) throw ConfigError("--lora-paths " + word + ": " + loaded.error().message);
  }
  return adapters;
}

/// The directory of the draft model, where it is not the model itself, as in scripts for DeepSeek-V3.
void find_draft_model(DraftOptions& drafts, const std::string& word,
                      const std::filesystem::path& directory) {
  const bool is_read = draft_word_of(drafts.algorithm, /*has_model=*/true) == DraftWord::kModel;
  if (drafts.model.empty() || !is_read) return;
  const std::string given = drafts.model;
  if (given != word)
    drafts.model =
        model_by_name(given, hub::Wanted::kModel, "--speculative-draft-model-path", "slime serve");
  std::error_code unknown;
  if (given != word && !std::filesystem::equivalent(drafts.model, directory, unknown)) return;
  drafts.model.clear();
  if (draft_word_of(drafts.algorithm, /*has_model=*/false) == DraftWord::kModel) {
    throw ConfigError(fmt::format(
        "--speculative-draft-model-path {}: is the model itself; --speculative-algorithm "
        "{} needs an EAGLE-3 draft model for it, and NEXTN takes its own layer",
        given, drafts.algorithm));
  }
}

}  // namespace

int serve(std::span<const std::string> arguments) {
  const SystemClock clock;
  const Clock::TimePoint start = clock.now();
  ServeOptions options;
  CLI::App app("Serves a model over HTTP: SGLang's routes and OpenAI's.", "slime serve");
  add_serve_options(app, options);
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;

  read_keys(options);
  const sigset_t stop_signals = block_stop_signals();

  if (options.nccl_alone && (options.tp_size == 1 || options.device.device == "cpu")) {
    std::fputs("slime serve: --disable-custom-all-reduce has no effect: no sums between GPUs\n",
               stderr);
  }
  engine::check_parsers(options.parsers);
  const std::string word = options.model;
  options.model = model_by_name(word, hub::Wanted::kModel, "--model", "slime serve");
  options.tokenizer =
      model_by_name(options.tokenizer, hub::Wanted::kText, "--tokenizer-path", "slime serve");
  const std::filesystem::path directory = options.model;
  const std::string name = options.model == word ? folder_name(directory) : name_of_word(word);
  const model::ModelConfig config = model::read_model_config(directory);
  const std::string dtype = options.dtype == "auto" ? config.dtype : options.dtype;
  options.drafts.num_ranks = options.tp_size;
  find_draft_model(options.drafts, word, directory);
  options.engine.drafts =
      draft_settings_of(options.drafts, options.device.device, config, "slime serve");
  if (options.engine.drafts.model)
    options.engine.draft_model = model::load_eagle3(
        options.drafts.model, config, model::precision_on(options.device.device, dtype),
        "--speculative-draft-model-path");
  const auto tokenizer =
      options.skip_tokenizer_init ? nullptr : open_tokenizer(tokenizer_of(options));
  if (tokenizer == nullptr) tell_flags_without_chat(options);
  std::optional<TemporaryFolder> logs;
  std::unique_ptr<roles::EngineRanks> ranks;
  if (options.tp_size > 1) {
    logs.emplace("slime-serve");
    const int threads = std::max(1, at::get_num_threads() / options.tp_size);
    at::set_num_threads(threads);  // ranks of one host share its cores
    ranks = start_ranks(options, dtype, config, threads, *logs, clock);
    options.engine.mesh = &ranks->mesh();
  }
  const auto network = model::load_network(
      directory, model::precision_on(options.device.device, dtype), *options.engine.mesh,
      options.engine.drafts.layer ? model::DraftLayers::kComputed : model::DraftLayers::kCarried);

  const auto adapters = open_adapters(options, *network, ranks.get());
  options.engine.adapters = adapters.get();
  if (options.engine.max_prefill_tokens < 0) {
    options.engine.max_prefill_tokens =
        options.engine.context_length > 0 ? options.engine.context_length : config.max_positions;
  }
  options.engine.kv_cache_bytes = kv_cache_bytes_of(options.device);
  if (options.max_total_tokens > 0) {
    options.engine.kv_cache_bytes =
        std::min(options.engine.kv_cache_bytes,
                 bytes_of_tokens(options.engine, *network, options.max_total_tokens));
  }
  options.engine.enable_prefix_cache = !options.disable_radix_cache;
  options.engine.seed = options.random_seed.value_or(std::random_device{}());
  if (tokenizer != nullptr) {
    options.engine.token_bytes = [&tokenizer](TokenId id) { return tokenizer->token_bytes(id); };
    options.engine.eos_token_ids = told_end_tokens(config, *tokenizer);
  }
  options.engine.constraints = make_constraints(options.grammar, tokenizer.get(), config.vocab_size,
                                                options.engine.eos_token_ids, "slime serve");
  engine::Engine engine(*network, options.engine, clock,
                        ranks ? ranks->make_runner() : engine::make_step_runner);

  if (adapters) adapters->change_with(engine);
  engine::ServedModel served{
      .name = options.served_model_name.empty() ? name : options.served_model_name,
      .path = directory,
      .tokenizer_path = tokenizer_of(options),
      .dtype = dtype,
      .model_type = config.model_type,
      .architectures = architectures_of(config),
      .context_length = engine.max_request_tokens(),
      .returns_routed_experts = options.engine.records_experts,
      .routed_layers = config.num_layers,
      .experts_per_token = config.experts.per_token,
      .vocab_size = config.vocab_size,
      .sampling_defaults = sampling_defaults_by(options.sampling_defaults, directory),
      .stream_interval = options.stream_interval,
      .tokenizer = tokenizer.get(),
      .longest_token_bytes = tokenizer == nullptr ? 0 : engine::longest_token_bytes(*tokenizer),
      .chat = tokenizer == nullptr ? nullptr : open_chat_model(options, *tokenizer),
      .names_reasoning_twice = options.names_reasoning_twice,
      .weight_roots = {engine::default_weight_root(directory)},
      .adapters = adapters.get(),
  };
  served.weight_roots.insert(served.weight_roots.end(), options.weight_roots.begin(),
                             options.weight_roots.end());
  options.api.watchdog_timeout = std::chrono::seconds(options.watchdog_timeout_s);
  options.api.sessions.max_bytes = options.session_memory_mib << 20;
  options.api.sessions.idle_time = std::chrono::seconds(options.session_idle_s);
  options.api.max_running_requests = options.engine.max_running_requests;
  options.api.random_seed = options.engine.seed;
  options.api.tp_size = options.tp_size;
  options.api.has_gpu = options.device.device != "cpu";
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
  end_at_next(stop_signals);
  static_cast<void>(engine.resume());  // a paused engine would never finish what runs
  server.stop(kStopGrace);
  return 0;
}

}  // namespace slime::cli
