#include "engine/http/token_route_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "engine/http/adapter_fields.h"
#include "engine/http/api_error.h"
#include "engine/http/generate_request.h"
#include "engine/http/grammar_fields.h"
#include "engine/sampling_json.h"
#include "engine/sampling_params.h"

namespace slime::engine {
namespace {

using Limits = RequestLimits;

constexpr auto kOutputModes = std::to_array<std::string_view>({"tokens", "text"});

/// `count` or `true`, which is one; -1 where there is none. vLLM's -1 is the whole vocabulary.
std::int64_t read_logprobs(const FieldReader& fields, const char* name) {
  const json::value* value = fields.find(name);
  if (value == nullptr) return -1;
  if (value->is_bool()) return value->get_bool() ? 1 : -1;
  return fields.integer(name, 0, Limits::kMaxTopLogprobs).value_or(-1);
}

/// The sampled token is the first of the log-probs that are asked for.
std::int64_t num_rivals(std::int64_t num_logprobs) { return num_logprobs > 1 ? num_logprobs : 0; }

void read_sampling(FieldReader& fields, const ServedModel& model, TokenRouteCall& call,
                   GenerateRequest& request, std::int64_t& n) {
  SamplingParams& sampling = request.sampling;
  n = fields.integer("n", 1, Limits::kMaxN).value_or(1);
  read_sampling_params(fields, SamplingNames::kOpenAi, model.vocab_size, sampling);
  sampling.max_new_tokens =
      fields.integer("max_tokens", 0, Limits::kMaxTokens).value_or(model.context_length);
  if (fields.integer("seed") == -1) sampling.sampling_seed.reset();  // vLLM's word for none
  if (sampling.top_k == 0) sampling.top_k = -1;
  sampling.no_stop_trim = fields.boolean("include_stop_str_in_output").value_or(false);
  call.num_logprobs = read_logprobs(fields, "logprobs");
  call.num_prompt_logprobs = read_logprobs(fields, "prompt_logprobs");
  request.return_logprob = call.num_logprobs >= 0 || call.num_prompt_logprobs >= 0;
  request.top_logprobs_num = std::max(num_rivals(call.num_logprobs), call.num_prompt_logprobs);
  request.top_logprobs_num = std::max<std::int64_t>(request.top_logprobs_num, 0);
  if (call.num_prompt_logprobs >= 0) request.logprob_start_len = 0;
  request.return_top_p_token_ids = fields.boolean("return_sampling_mask").value_or(false);
  request.return_routed_experts = model.returns_routed_experts;
  request.routed_experts_start_len =
      fields.integer("routed_experts_prompt_start", 0, Limits::kMaxTokens).value_or(0);
  request.return_free_logprobs = fields.boolean("return_free_logprobs").value_or(false);
  read_structured_outputs(fields, request);
  refuse_unsupported(fields, kTokenSampling);
  fields.refuse_unknown(known_fields(kTokenSampling));
}

void add_requests(TokenRouteCall& call, const GenerateRequest& shared, std::int64_t n) {
  for (std::int64_t copy = 0; copy < n; ++copy) {
    GenerateRequest request = shared;
    request.rid = n == 1 ? call.request_id : fmt::format("{}_{}", call.request_id, copy);
    if (request.sampling.sampling_seed)
      *request.sampling.sampling_seed += static_cast<std::uint64_t>(copy);
    call.requests.push_back(std::move(request));
  }
}

}  // namespace

TokenRouteCall parse_token_route_call(const json::object& body, const ServedModel& model) {
  std::vector<std::string> problems;
  FieldReader fields(body, "", problems);
  TokenRouteCall call;
  GenerateRequest request;
  request.sampling = model.sampling_defaults;
  request.stream_interval = model.stream_interval;
  call.model = fields.text("model", 1024).value_or(model.name);
  take_adapter_of_model(model, call.model, request);
  call.request_id = fields.text("request_id", Limits::kMaxRidBytes).value_or("");
  if (call.request_id.empty()) call.request_id = make_rid();
  call.streams = fields.boolean("stream").value_or(false);
  if (const auto options = fields.fields("stream_options")) {
    call.includes_usage = options->boolean("include_usage").value_or(false);
    call.continuous_usage = options->boolean("continuous_usage_stats").value_or(false);
  }
  call.returns_prompt_ids = fields.boolean("return_token_ids").value_or(false);
  call.returns_text = fields.one_of("output_mode", kOutputModes) == "text";
  if (call.returns_text && model.tokenizer == nullptr)
    fields.note("output_mode", "must be \"tokens\": this server has no tokenizer");
  request.cache_salt =
      joined_salt(fields.text("cache_salt", Limits::kMaxSaltBytes).value_or(""), "");
  refuse_unsupported(fields, kTokenRoute);
  request.input_ids = fields.required().token_ids("token_ids", model.vocab_size);
  if (problems.empty() && request.input_ids.empty()) fields.note("token_ids", "must not be empty");
  std::int64_t n = 1;
  if (auto sampling = fields.fields("sampling_params")) {
    read_sampling(*sampling, model, call, request, n);
  } else {
    request.sampling.max_new_tokens = model.context_length;
    request.return_routed_experts = model.returns_routed_experts;
  }
  fields.refuse_unknown(known_fields(kTokenRoute));
  for (const std::string& problem :
       problems_of(request.sampling, model.vocab_size, SamplingNames::kOpenAi))
    problems.push_back("sampling_params." + problem);
  const auto length = static_cast<std::int64_t>(request.input_ids.size());
  if (request.routed_experts_start_len > length) {
    problems.push_back(
        fmt::format("sampling_params.routed_experts_prompt_start is {}, of {} token_ids",
                    request.routed_experts_start_len, length));
  }
  if (static_cast<std::size_t>(length * n) > Limits::kMaxTotalTokens) {
    problems.push_back(fmt::format("sampling_params.n times the prompt must be at most {} tokens",
                                   Limits::kMaxTotalTokens));
  }
  if (!problems.empty()) throw ConfigError(problems);
  if (length + (request.sampling.max_new_tokens > 0 ? 1 : 0) > model.context_length)
    throw context_length_exceeded(model.context_length, length);
  add_requests(call, request, n);
  return call;
}

}  // namespace slime::engine
