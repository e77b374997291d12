/// Routes that only look: health, version, model, load, metrics.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "core/error.h"
#include "core/json.h"
#include "engine/http/api_state.h"
#include "engine/http/generate_request.h"
#include "engine/http/metrics_text.h"
#include "engine/http/running_call.h"

namespace slime::engine {
namespace {

constexpr std::chrono::seconds kProbeTimeout{20};
constexpr const char* kMetricsType = "text/plain; version=0.0.4";

/// A busy engine is healthy as long as its steps end; a wedged one is not, however politely HTTP
/// answers, and one that cannot be reached is not either.
bool is_wedged(const ApiState& state, const Expected<EngineLoad>& load) {
  return !load || load->seconds_without_progress >
                      static_cast<double>(state.options.watchdog_timeout.count());
}

HttpResponse health(ApiState& state, const HttpRequest&) {
  return {.status = is_wedged(state, state.engine.load()) ? 503 : 200, .content_type = ""};
}

HttpResponse version(ApiState&, const HttpRequest&) {
  return json_response({{"version", "slime"}});
}

/// Proves that a token can be made. Under load the running requests are the proof; a paused engine
/// is as it should be.
Task<void> health_generate(ApiState& state, HttpExchange& exchange) {
  const Expected<EngineLoad> load = state.engine.load();
  HttpResponse response{.content_type = ""};
  if (is_wedged(state, load)) {
    response.status = 503;
  } else if (!load->is_paused && load->num_running == 0) {
    GenerateRequest probe;
    probe.rid = "HEALTH_CHECK_" + make_rid();
    probe.input_ids = {0};
    probe.sampling.max_new_tokens = 1;
    probe.sampling.temperature = 0;
    RunningCall running(state.engine, exchange, state.probes, {}, {std::move(probe)});
    const std::vector<IndexedUpdate> updates = co_await running.next(kProbeTimeout);
    const bool is_done = !updates.empty() && updates.back().second.finish &&
                         updates.back().second.finish->kind != FinishReason::Kind::kAbort;
    // A step may have been long, or the engine paused meanwhile: only the lack of progress counts.
    const Expected<EngineLoad> now = state.engine.load();
    const bool went_on = now && (now->is_paused || now->steps_done != load->steps_done);
    if (!is_done && !went_on) response.status = 503;
  }
  co_await exchange.send(std::move(response));
}

HttpResponse weight_version(ApiState& state, const HttpRequest&) {
  return json_response({{"weight_version", state.versions.name_of(state.engine.weight_version())}});
}

HttpResponse model_info(ApiState& state, const HttpRequest&) {
  const ServedModel& model = state.model;
  const auto& tokenizer_path = model.tokenizer_path.empty() ? model.path : model.tokenizer_path;
  return json_response({{"model_path", state.weights_folder.path()},
                        {"tokenizer_path", tokenizer_path.string()},
                        {"is_generation", true},
                        {"preferred_sampling_params", nullptr},
                        {"weight_version", state.versions.name_of(state.engine.weight_version())},
                        {"has_image_understanding", false},
                        {"has_audio_understanding", false},
                        {"model_type", model.model_type},
                        {"architectures", json::value_from(model.architectures)}});
}

/// The used share of the KV cache.
double usage_of(const EngineLoad& load) {
  return load.num_kv_tokens > 0 ? static_cast<double>(load.num_kv_tokens_used) /
                                      static_cast<double>(load.num_kv_tokens)
                                : 0.0;
}

json::object to_json(const ApiState& state, const EngineLoad& load) {
  const double usage = usage_of(load);
  json::object object{{"dp_rank", 0},
                      {"num_running_reqs", load.num_running},
                      {"num_waiting_reqs", load.num_waiting},
                      {"num_used_tokens", load.num_kv_tokens_used},
                      {"num_total_tokens", load.num_kv_tokens_used},
                      {"max_total_num_tokens", load.num_kv_tokens},
                      {"num_tokens_given_back", load.num_kv_tokens_given_back},
                      {"token_usage", usage},
                      {"gen_throughput", load.decode_tokens_per_second},
                      {"cache_hit_rate", state.metrics.cache_hit_rate()},
                      {"utilization", usage},
                      {"max_running_requests", state.options.max_running_requests},
                      {"is_paused", load.is_paused},
                      {"steps_done", load.steps_done},
                      {"seconds_since_step", load.seconds_since_step},
                      {"seconds_without_progress", load.seconds_without_progress}};
  if (load.drafts.num_steps > 0) {
    object["avg_spec_accept_length"] = load.drafts.accept_length();
    object["spec_accept_rate"] = load.drafts.accept_rate();
  }
  if (load.drafts.num_compared > 0) object["verify_redrawn_rate"] = load.drafts.redrawn_share();
  return object;
}

void add_drafts(MetricsText& text, const DraftCounts& drafts) {
  if (drafts.num_steps == 0) return;
  text.gauge("spec_accept_length",
             "Tokens of a request in a step, drafts that were right included.",
             drafts.accept_length());
  text.gauge("spec_accept_rate", "Share of the drafts that were right.", drafts.accept_rate());
  text.counter("spec_verify_calls_total", "Steps of requests, with drafts and without.",
               drafts.num_steps);
  text.counter("spec_proposed_drafts_total", "Drafts that were verified.", drafts.num_drafted);
  text.counter("spec_correct_drafts_total", "Drafts that were right.", drafts.num_kept);
  if (drafts.num_compared == 0) return;
  text.counter("verify_compared_total",
               "Tokens of fast steps that were compared with the trainer's arithmetic.",
               drafts.num_compared);
  text.counter("verify_redrawn_total", "Of those, tokens that it drew otherwise.",
               drafts.num_redrawn);
}

void add_load(MetricsText& text, const ApiState& state, const EngineLoad& load) {
  text.gauge("num_running_reqs", "Requests being decoded.", load.num_running);
  text.gauge("num_queue_reqs", "Requests waiting.", load.num_waiting);
  text.gauge("num_used_tokens", "Tokens in the KV cache.", load.num_kv_tokens_used);
  text.gauge("max_total_num_tokens", "Tokens for which the KV cache has room.", load.num_kv_tokens);
  text.gauge("token_usage", "Used share of the KV cache.", usage_of(load));
  text.gauge("gen_throughput", "Generated tokens per second.", load.decode_tokens_per_second);
  text.gauge("cache_hit_rate", "Share of prompt tokens found in the cache.",
             state.metrics.cache_hit_rate());
  add_drafts(text, load.drafts);
}

/// Queries that ask for a part, or for another engine's, get what they ask for or are refused.
void check_loads_query(const HttpRequest& request) {
  constexpr auto kSections = std::to_array<std::string_view>(
      {"core", "memory", "spec", "lora", "disagg", "queues", "all"});
  std::vector<std::string> problems;
  const std::string include = request.query_value("include").value_or("all");
  for (std::size_t begin = 0; begin <= include.size();) {
    const std::size_t end = std::min(include.find(',', begin), include.size());
    const std::string_view section = std::string_view(include).substr(begin, end - begin);
    if (std::ranges::find(kSections, section) == kSections.end())
      problems.push_back(
          fmt::format("include is \"{}\"; sections are {}", section, fmt::join(kSections, ", ")));
    begin = end + 1;
  }
  const std::string rank = request.query_value("dp_rank").value_or("0");
  if (rank != "0") problems.push_back(fmt::format("dp_rank is \"{}\"; there is one: 0", rank));
  const std::string format = request.query_value("format").value_or("json");
  if (format != "json" && format != "prometheus")
    problems.push_back(fmt::format("format is \"{}\"; json and prometheus are known", format));
  require_none(problems);
}

HttpResponse loads(const ApiState& state, const EngineLoad& load, const HttpRequest& request) {
  check_loads_query(request);
  if (request.query_value("format") == "prometheus") {
    MetricsText text("dp_rank", "0");
    add_load(text, state, load);
    return {.body = text.take(), .content_type = kMetricsType};
  }
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return json_response(
      {{"timestamp", now}, {"version", "slime"}, {"loads", json::array{to_json(state, load)}}});
}

HttpResponse get_load(const ApiState&, const EngineLoad& load, const HttpRequest&) {
  return json_response(json::array{{{"dp_rank", 0},
                                    {"num_reqs", load.num_running + load.num_waiting},
                                    {"num_waiting_reqs", load.num_waiting},
                                    {"num_tokens", load.num_kv_tokens_used}}});
}

HttpResponse server_info(const ApiState& state, const EngineLoad& load, const HttpRequest&) {
  const ServedModel& model = state.model;
  const int tp_size = state.options.tp_size;
  return json_response(
      {{"model_path", state.weights_folder.path()},
       {"served_model_name", model.name},
       {"dtype", model.dtype},
       {"context_length", model.context_length},
       {"max_running_requests", state.options.max_running_requests},
       {"random_seed", state.options.random_seed},
       {"weight_version", state.versions.name_of(state.engine.weight_version())},
       {"tp_size", tp_size},
       {"pp_size", 1},
       {"dp_size", 1},
       {"ep_size", 1},
       {"moe_dp_size", 1},
       {"num_gpus", tp_size},  // devices, a CPU's rank too
       {"disaggregation_mode", "null"},
       {"disaggregation_bootstrap_port", nullptr},
       {"encoder_only", false},
       {"enable_memory_saver", false},
       {"enable_return_routed_experts", model.returns_routed_experts},
       {"incremental_streaming_output", state.options.incremental_streaming_output},
       {"max_total_num_tokens", load.num_kv_tokens},
       {"max_req_input_len", model.context_length - 1},
       {"internal_states", json::array{to_json(state, load)}},
       {"version", "slime"}});
}

void add_grammars(MetricsText& text, const GrammarLoad& grammars) {
  text.counter("grammars_compiled_total", "Grammars compiled.", grammars.num_compiled);
  text.counter("grammars_refused_total", "Grammars whose source cannot be followed.",
               grammars.num_refused);
  text.counter("grammars_too_slow_total", "Grammars that took longer to compile than they may.",
               grammars.num_too_slow);
  text.counter("grammars_busy_total", "Requests turned away because too many grammars waited.",
               grammars.num_busy);
  text.counter("grammar_cache_hits_total", "Requests whose grammar was compiled before.",
               grammars.num_cache_hits);
  text.gauge("grammar_queue_reqs", "Grammars that wait for a thread or are being compiled.",
             grammars.num_waiting + grammars.num_running);
  text.gauge("grammars_cached", "Compiled grammars that are kept.", grammars.num_cached);
  text.gauge("grammar_cache_bytes", "Held by them.", grammars.cache_bytes);
  text.counter("grammar_masks_total", "Masks computed under a grammar.", grammars.num_masks);
  text.counter("grammar_mask_seconds_total", "Time for all of them.", grammars.mask_seconds);
}

HttpResponse metrics(const ApiState& state, const EngineLoad& load, const HttpRequest&) {
  const RequestMetrics& metrics = state.metrics;
  MetricsText text("model_name", state.model.name);
  add_load(text, state, load);
  text.counter("tokens_given_back_total",
               "Tokens behind all sliding windows whose place in the KV cache was given back.",
               load.num_kv_tokens_given_back);
  text.gauge("seconds_since_step", "Age of the last finished engine step.",
             load.seconds_since_step);
  text.gauge("seconds_without_progress", "The same while there is work, else 0.",
             load.seconds_without_progress);
  text.gauge("response_bytes", "Held by answers in the making.", state.responses.num_bytes());
  text.gauge("open_sessions", "Sessions of agents.", state.sessions.all().size());
  text.gauge("session_bytes", "Held by the turns of sessions.", state.sessions.num_bytes());
  text.counter("dropped_sessions_total", "Sessions dropped because nothing was asked of them.",
               state.sessions.num_dropped());
  add_grammars(text, load.grammars);
  text.counter("engine_steps_total", "Engine steps.", load.steps_done);
  text.counter("num_requests_total", "Finished requests.", metrics.num_requests.load());
  text.counter("num_aborted_requests_total", "Aborted requests.", metrics.num_aborted.load());
  text.counter("prompt_tokens_total", "Prompt tokens.", metrics.num_prompt_tokens.load());
  text.counter("cached_tokens_total", "Prompt tokens found in the cache.",
               metrics.num_cached_tokens.load());
  text.counter("generation_tokens_total", "Generated tokens.", metrics.num_generated_tokens.load());
  text.histogram("time_to_first_token_seconds", "From submission to the first token.",
                 metrics.first_token);
  text.histogram("inter_token_latency_seconds", "From one token to the next.",
                 metrics.between_tokens);
  text.histogram("e2e_request_latency_seconds", "From submission to the end.",
                 metrics.whole_request);
  text.histogram("queue_time_seconds", "From submission to the first step.", metrics.in_queue);
  return {.body = text.take(), .content_type = kMetricsType};
}

}  // namespace

void add_information_routes(ApiState& state, std::vector<net::HttpRoute>& routes) {
  using Answer = HttpResponse (*)(ApiState&, const HttpRequest&);
  const auto add = [&](const char* path, RouteClass route_class, Answer answer) {
    routes.emplace_back("GET", path, route_class,
                        net::answer_with([&state, answer](const HttpRequest& request) {
                          return answer(state, request);
                        }));
  };
  using LoadAnswer = HttpResponse (*)(const ApiState&, const EngineLoad&, const HttpRequest&);
  const auto add_of_load = [&](const char* path, RouteClass route_class, LoadAnswer answer) {
    routes.emplace_back("GET", path, route_class,
                        net::answer_with([&state, answer](const HttpRequest& request) {
                          const Expected<EngineLoad> load = state.engine.load();
                          if (!load) return net::error_response(503, load.error().message);
                          return answer(state, *load, request);
                        }));
  };
  add("/health", RouteClass::kProbe, health);
  add("/ping", RouteClass::kProbe, health);  // vLLM's, SageMaker's
  add("/version", RouteClass::kProbe, version);
  routes.emplace_back(
      "GET", "/health_generate", RouteClass::kProbe,
      [&state](HttpExchange& exchange) { return health_generate(state, exchange); });
  add_of_load("/metrics", RouteClass::kProbe, metrics);
  add("/get_weight_version", RouteClass::kInference, weight_version);
  add("/weight_version", RouteClass::kInference, weight_version);
  add("/model_info", RouteClass::kInference, model_info);
  add("/get_model_info", RouteClass::kInference, model_info);
  add_of_load("/server_info", RouteClass::kInference, server_info);
  add_of_load("/get_server_info", RouteClass::kInference, server_info);
  add_of_load("/v1/loads", RouteClass::kInference, loads);
  add_of_load("/get_load", RouteClass::kInference, get_load);
}

}  // namespace slime::engine
