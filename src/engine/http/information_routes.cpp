/// Routes that only look: health, model, load, metrics, the tokens of a text.

#include <fmt/format.h>

#include <array>
#include <chrono>

#include "core/error.h"
#include "core/json.h"
#include "engine/http/api_state.h"
#include "engine/http/generate_request.h"
#include "engine/http/running_call.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {
namespace {

using net::HttpExchange;
using net::HttpRequest;
using net::HttpResponse;
using net::RouteClass;
using net::Task;

constexpr std::chrono::seconds kProbeTimeout{20};

/// A busy engine is healthy as long as its steps end; a wedged one is not, however politely HTTP
/// answers, and one that cannot be reached is not either.
bool is_wedged(const ApiState& state, const Expected<EngineLoad>& load) {
  return !load || load->seconds_without_progress >
                      static_cast<double>(state.options.watchdog_timeout.count());
}

HttpResponse health(ApiState& state, const HttpRequest&) {
  return {.status = is_wedged(state, state.engine.load()) ? 503 : 200, .content_type = ""};
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
  return json_response({{"model_path", state.weights_folder.path()},
                        {"tokenizer_path", model.path.string()},
                        {"is_generation", true},
                        {"preferred_sampling_params", nullptr},
                        {"weight_version", state.versions.name_of(state.engine.weight_version())},
                        {"has_image_understanding", false},
                        {"has_audio_understanding", false},
                        {"model_type", model.model_type},
                        {"architectures", json::value_from(model.architectures)}});
}

json::object to_json(const ApiState& state, const EngineLoad& load) {
  const double usage = load.num_kv_tokens > 0 ? static_cast<double>(load.num_kv_tokens_used) /
                                                    static_cast<double>(load.num_kv_tokens)
                                              : 0.0;
  const auto prompt_tokens = state.counters.num_prompt_tokens.load();
  const double hit_rate = prompt_tokens > 0
                              ? static_cast<double>(state.counters.num_cached_tokens.load()) /
                                    static_cast<double>(prompt_tokens)
                              : 0.0;
  return {{"dp_rank", 0},
          {"num_running_reqs", load.num_running},
          {"num_waiting_reqs", load.num_waiting},
          {"num_used_tokens", load.num_kv_tokens_used},
          {"num_total_tokens", load.num_kv_tokens_used},
          {"max_total_num_tokens", load.num_kv_tokens},
          {"num_tokens_given_back", load.num_kv_tokens_given_back},
          {"token_usage", usage},
          {"gen_throughput", load.decode_tokens_per_second},
          {"cache_hit_rate", hit_rate},
          {"utilization", usage},
          {"max_running_requests", state.options.max_running_requests},
          {"is_paused", load.is_paused},
          {"steps_done", load.steps_done},
          {"seconds_since_step", load.seconds_since_step},
          {"seconds_without_progress", load.seconds_without_progress}};
}

HttpResponse loads(const ApiState& state, const EngineLoad& load) {
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return json_response(
      {{"timestamp", now}, {"version", "slime"}, {"loads", json::array{to_json(state, load)}}});
}

HttpResponse get_load(const ApiState&, const EngineLoad& load) {
  return json_response(json::array{{{"dp_rank", 0},
                                    {"num_reqs", load.num_running + load.num_waiting},
                                    {"num_waiting_reqs", load.num_waiting},
                                    {"num_tokens", load.num_kv_tokens_used}}});
}

HttpResponse server_info(const ApiState& state, const EngineLoad& load) {
  const ServedModel& model = state.model;
  return json_response(
      {{"model_path", state.weights_folder.path()},
       {"served_model_name", model.name},
       {"dtype", model.dtype},
       {"context_length", model.context_length},
       {"max_running_requests", state.options.max_running_requests},
       {"random_seed", state.options.random_seed},
       {"weight_version", state.versions.name_of(state.engine.weight_version())},
       {"tp_size", 1},
       {"pp_size", 1},
       {"dp_size", 1},
       {"ep_size", 1},
       {"moe_dp_size", 1},
       {"num_gpus", 1},
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

/// Prometheus text format, SGLang's names.
HttpResponse metrics(const ApiState& state, const EngineLoad& load) {
  std::string text;
  const auto add = [&](const char* name, const char* type, const char* help, auto value) {
    text += fmt::format(
        "# HELP sglang:{0} {1}\n# TYPE sglang:{0} {2}\nsglang:{0}{{model_name=\"{3}\"}} {4}\n",
        name, help, type, state.model.name, value);
  };
  const double usage = load.num_kv_tokens > 0 ? static_cast<double>(load.num_kv_tokens_used) /
                                                    static_cast<double>(load.num_kv_tokens)
                                              : 0.0;
  add("num_running_reqs", "gauge", "Requests being decoded.", load.num_running);
  add("num_queue_reqs", "gauge", "Requests waiting.", load.num_waiting);
  add("num_used_tokens", "gauge", "Tokens in the KV cache.", load.num_kv_tokens_used);
  add("tokens_given_back_total", "counter",
      "Tokens behind all sliding windows whose place in the KV cache was given back.",
      load.num_kv_tokens_given_back);
  add("token_usage", "gauge", "Used share of the KV cache.", usage);
  add("gen_throughput", "gauge", "Generated tokens per second.", load.decode_tokens_per_second);
  add("seconds_since_step", "gauge", "Age of the last finished engine step.",
      load.seconds_since_step);
  add("seconds_without_progress", "gauge", "The same while there is work, else 0.",
      load.seconds_without_progress);
  add("response_bytes", "gauge", "Held by answers in the making.", state.responses.num_bytes());
  add("engine_steps_total", "counter", "Engine steps.", load.steps_done);
  add("num_requests_total", "counter", "Finished requests.", state.counters.num_requests.load());
  add("num_aborted_requests_total", "counter", "Aborted requests.",
      state.counters.num_aborted.load());
  add("prompt_tokens_total", "counter", "Prompt tokens.", state.counters.num_prompt_tokens.load());
  add("cached_tokens_total", "counter", "Prompt tokens found in the cache.",
      state.counters.num_cached_tokens.load());
  add("generation_tokens_total", "counter", "Generated tokens.",
      state.counters.num_generated_tokens.load());
  return {.body = std::move(text), .content_type = "text/plain; version=0.0.4"};
}

constexpr std::array<std::string_view, 3> kTokenizeFields{"model", "prompt", "add_special_tokens"};
constexpr std::array<std::string_view, 3> kDetokenizeFields{"model", "tokens",
                                                            "skip_special_tokens"};

/// The prompt is a text, or a list of texts; then tokens and count are lists too.
HttpResponse tokenize(ApiState& state, const HttpRequest& request) {
  const json::object body = parse_body(request.body);
  std::vector<std::string> problems;
  const FieldReader fields(body, "", problems);
  const bool adds_special = fields.boolean("add_special_tokens").value_or(true);
  const json::value* prompt = fields.find("prompt");
  const bool is_list = prompt != nullptr && prompt->is_array();
  const std::vector<std::string> texts = fields.required().texts("prompt");
  fields.refuse_unknown(kTokenizeFields);
  require_none(problems);

  json::array tokens, counts;
  for (const std::string& text : texts) {
    const auto ids = encode_prompt(state.model, "prompt", text, adds_special);
    tokens.push_back(json::value_from(ids));
    counts.push_back(ids.size());
  }
  if (!is_list && tokens.empty()) {  // the empty text
    const auto ids = encode_prompt(state.model, "prompt", "", adds_special);
    tokens.push_back(json::value_from(ids));
    counts.push_back(ids.size());
  }
  return json_response({{"tokens", is_list ? json::value(tokens) : tokens.front()},
                        {"count", is_list ? json::value(counts) : counts.front()},
                        {"max_model_len", state.model.context_length}});
}

HttpResponse detokenize(ApiState& state, const HttpRequest& request) {
  require_tokenizer(state.model);
  const json::object body = parse_body(request.body);
  std::vector<std::string> problems;
  const FieldReader fields(body, "", problems);
  const bool skips_special = fields.boolean("skip_special_tokens").value_or(true);
  const auto ids = fields.required().token_ids("tokens", state.model.vocab_size);
  fields.refuse_unknown(kDetokenizeFields);
  require_none(problems);
  return json_response({{"text", state.model.tokenizer->decode(ids, skips_special)}});
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
  using LoadAnswer = HttpResponse (*)(const ApiState&, const EngineLoad&);
  const auto add_of_load = [&](const char* path, RouteClass route_class, LoadAnswer answer) {
    routes.emplace_back("GET", path, route_class,
                        net::answer_with([&state, answer](const HttpRequest&) {
                          const Expected<EngineLoad> load = state.engine.load();
                          if (!load) return net::error_response(503, load.error().message);
                          return answer(state, *load);
                        }));
  };
  add("/health", RouteClass::kProbe, health);
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
  const auto add_of_text = [&](const char* path, Answer answer) {
    routes.emplace_back(
        "POST", path, RouteClass::kInference,
        answer_on(state.parse_threads,
                  [&state, answer](const HttpRequest& request) { return answer(state, request); }));
  };
  for (const char* path : {"/tokenize", "/v1/tokenize"}) add_of_text(path, tokenize);
  for (const char* path : {"/detokenize", "/v1/detokenize"}) add_of_text(path, detokenize);
}

}  // namespace slime::engine
