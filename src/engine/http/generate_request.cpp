#include "engine/http/generate_request.h"

#include <fmt/format.h>

#include <random>
#include <set>

#include "core/error.h"
#include "engine/http/adapter_fields.h"
#include "engine/http/api_error.h"
#include "engine/sampling_json.h"
#include "engine/sampling_params.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {
namespace {

using Limits = RequestLimits;

struct Prompts {
  std::vector<std::vector<TokenId>> ids;
  bool is_list = false;
};

Prompts read_prompts(FieldReader& fields, const ServedModel& model) {
  Prompts prompts;
  const auto add_text = [&](const json::value& text) {
    if (!text.is_string()) return fields.note("text", "must be a string or a list of strings");
    prompts.ids.push_back(encode_prompt(model, "text", text.get_string(), true));
    if (prompts.ids.back().empty()) fields.note("text", "is empty: there is nothing to continue");
  };
  const auto add_ids = [&](const json::value& list) {
    prompts.ids.push_back(fields.token_ids(list, "input_ids", model.vocab_size));
    if (list.is_array() && list.get_array().empty()) fields.note("input_ids", "must not be empty");
  };
  const json::value* text = fields.find("text");
  const json::value* input_ids = fields.find("input_ids");
  if (text != nullptr && input_ids != nullptr)
    fields.note("input_ids", "and text are two prompts; send one of them");
  const json::value* given = text != nullptr ? text : input_ids;
  if (given == nullptr) {
    fields.note("text", "or input_ids must be given");
    return prompts;
  }
  const json::array* list = given->if_array();
  prompts.is_list =
      list != nullptr && (text != nullptr || (!list->empty() && (*list)[0].is_array()));
  if (!prompts.is_list) {
    text != nullptr ? add_text(*given) : add_ids(*given);
    return prompts;
  }
  if (list->empty() || list->size() > static_cast<std::size_t>(Limits::kMaxBatch)) {
    fields.note(text != nullptr ? "text" : "input_ids",
                fmt::format("must have 1 to {} prompts", Limits::kMaxBatch));
    return prompts;
  }
  for (const json::value& element : *list) text != nullptr ? add_text(element) : add_ids(element);
  return prompts;
}

/// A prompt that fills the context can be scored, not continued.
void check_length(const ServedModel& model, const GenerateRequest& request) {
  const auto count = static_cast<std::int64_t>(request.input_ids.size());
  if (count + (request.sampling.max_new_tokens > 0 ? 1 : 0) > model.context_length)
    throw context_length_exceeded(model.context_length, count);
}

/// The members of sampling_params that say how one prompt is generated from.
void read_sampling(const json::object& own, const ServedModel& model, GenerateRequest& request,
                   std::int64_t& n, std::vector<std::string>& problems) {
  FieldReader sampling(own, "sampling_params.", problems);
  check_fields(sampling, kSampling, {}, model.vocab_size);
  refuse_unsupported(sampling, kSampling);
  sampling.refuse_unknown(known_fields(kSampling));
  read_sampling_params(sampling, SamplingNames::kSglang, model.vocab_size, request.sampling);
  require_tokenizer_for_stop(sampling, model);
  const json::value* most = own.if_contains("max_new_tokens");
  if (most != nullptr && most->is_null())  // as long as the context allows
    request.sampling.max_new_tokens = model.context_length;
  if (const json::value* custom = sampling.find("custom_params"); custom && custom->is_object()) {
    const FieldReader reader(custom->get_object(), "sampling_params.custom_params.", problems);
    request.return_top_p_token_ids = reader.boolean("return_top_p_token_ids").value_or(false);
    request.return_top_p_log_probs = reader.boolean("return_top_p_log_probs").value_or(false);
  }
  const auto whole = [&](std::string_view name, std::int64_t absent) {
    const json::value* value = sampling.find(name);
    return value == nullptr ? absent : whole_number(*value).value_or(absent);
  };
  n = whole("n", 1);
  request.stream_interval = whole("stream_interval", request.stream_interval);
}

/// What every prompt has of its own next to its tokens. The table has checked the types.
GenerateRequest read_request(const json::object& body, std::size_t index, const ServedModel& model,
                             std::int64_t& n, std::vector<std::string>& problems) {
  GenerateRequest request;
  request.sampling = model.sampling_defaults;
  request.stream_interval = model.stream_interval;
  n = 1;
  const auto value = [&](const char* name) { return value_of_prompt(body, name, index); };
  const auto flag = [&](const char* name) {
    const json::value* given = value(name);
    return given != nullptr && given->get_bool();
  };
  const auto whole = [&](const char* name, std::int64_t absent) {
    const json::value* given = value(name);
    return given == nullptr ? absent : whole_number(*given).value();
  };
  const auto text = [&](const char* name) {
    const json::value* given = value(name);
    return given == nullptr ? std::string() : std::string(given->get_string());
  };
  if (const json::value* params = value("sampling_params"))
    read_sampling(params->get_object(), model, request, n, problems);
  request.return_logprob = flag("return_logprob");
  if (request.return_logprob) {  // the others only say how much of them
    request.logprob_start_len = whole("logprob_start_len", -1);
    request.top_logprobs_num = whole("top_logprobs_num", 0);
    if (const json::value* ids = value("token_ids_logprob"))
      request.token_ids_logprob = json::value_to<std::vector<TokenId>>(*ids);
  }
  request.return_free_logprobs = flag("return_free_logprobs");
  request.return_routed_experts = flag("return_routed_experts");
  request.routed_experts_start_len = whole("routed_experts_start_len", 0);
  request.num_sampled = whole("num_sampled", 0);
  request.cache_salt = joined_salt(text("cache_salt"), text("extra_key"));
  take_adapter_named(model, text("lora_path"), request);
  request.rid = text("rid");
  return request;
}

/// A rid for the whole call is numbered through its requests; one of a list, which has one for each
/// prompt, through the prompt's samples.
void name_requests(GenerateCall& call, std::size_t num_prompts, const json::object& body,
                   FieldReader& fields) {
  const json::value* rid = body.if_contains("rid");
  const bool is_shared = rid != nullptr && rid->is_string() && call.is_list;
  const bool has_copies = call.requests.size() > num_prompts;
  std::set<std::string> seen;
  for (std::size_t i = 0; i < call.requests.size(); ++i) {
    std::string& own = call.requests[i].rid;
    if (own.empty()) {
      own = make_rid();
    } else if (is_shared) {
      own += fmt::format("_{}", i);
    } else if (has_copies) {
      own += fmt::format("_{}", i / num_prompts);
    }
    if (!seen.insert(own).second) return fields.note("rid", "must not repeat within a batch");
  }
}

}  // namespace

void require_tokenizer_for_stop(FieldReader& fields, const ServedModel& model) {
  if (model.tokenizer == nullptr)
    fields.refuse("stop", "needs a tokenizer, and this server has none; use stop_token_ids");
}

std::string joined_salt(std::string_view cache_salt, std::string_view extra_key) {
  if (cache_salt.empty() && extra_key.empty()) return {};
  return fmt::format("{} {}{}", cache_salt.size(), cache_salt, extra_key);
}

std::string make_rid() {
  thread_local std::mt19937_64 generator = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device(),
                       device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  const std::uint64_t high = generator();
  return fmt::format("{:016x}{:016x}", high, generator());
}

GenerateCall parse_generate_call(const json::object& body, const ServedModel& model) {
  return parse_generate_form(body, model, {});
}

GenerateCall parse_generate_form(const json::object& body, const ServedModel& model,
                                 std::span<const std::string_view> further_fields) {
  std::vector<std::string> problems;
  FieldReader fields(body, "", problems);
  const Prompts prompts = read_prompts(fields, model);
  check_fields(fields, kGenerate, {.count = prompts.ids.size(), .is_list = prompts.is_list},
               model.vocab_size);
  refuse_unsupported(fields, kGenerate);
  std::vector<std::string_view> known = known_fields(kGenerate);
  known.insert(known.end(), further_fields.begin(), further_fields.end());
  fields.refuse_unknown(known);
  if (model.tokenizer == nullptr)
    fields.refuse("return_text_in_logprobs", "needs a tokenizer, and this server has none");
  if (!problems.empty()) throw ConfigError(problems);

  GenerateCall call;
  call.is_list = prompts.is_list;
  call.streams = fields.boolean("stream").value_or(false);
  call.returns_text_in_logprobs = fields.boolean("return_text_in_logprobs").value_or(false);
  call.returns_prompt_token_ids = fields.boolean("return_prompt_token_ids").value_or(false);

  std::int64_t n = 1;
  for (std::size_t i = 0; i < prompts.ids.size(); ++i) {
    std::int64_t own_n = 1;
    GenerateRequest request = read_request(body, i, model, own_n, problems);
    if (i == 0) n = own_n;
    if (own_n != n) fields.note("sampling_params.n", "must be the same for the whole batch");
    request.input_ids = prompts.ids[i];
    check_length(model, request);
    const auto num_tokens = static_cast<std::int64_t>(request.input_ids.size());
    if (request.logprob_start_len > num_tokens) {
      fields.note("logprob_start_len", fmt::format("is {}, beyond the prompt's {} tokens",
                                                   request.logprob_start_len, num_tokens));
    }
    for (const std::string& problem : problems_of(request.sampling, model.vocab_size)) {
      problems.push_back("sampling_params." + problem);
    }
    call.requests.push_back(std::move(request));
    if (!problems.empty()) throw ConfigError(problems);  // one prompt's are enough to read
  }
  if (!problems.empty()) throw ConfigError(problems);

  // n copies of the whole list, in SGLang's order: p0 .. pk, p0 .. pk, ...
  const std::size_t num_prompts = call.requests.size();
  std::size_t num_tokens = 0;
  for (const GenerateRequest& request : call.requests) num_tokens += request.input_ids.size();
  if (static_cast<std::int64_t>(num_prompts) * n > Limits::kMaxBatch ||
      num_tokens * static_cast<std::size_t>(n) > Limits::kMaxTotalTokens) {
    throw ConfigError(
        fmt::format("sampling_params.n times the prompts must be at most {} requests and {} tokens",
                    Limits::kMaxBatch, Limits::kMaxTotalTokens));
  }
  call.is_list |= n > 1;
  for (std::int64_t copy = 1; copy < n; ++copy) {
    for (std::size_t i = 0; i < num_prompts; ++i) {
      GenerateRequest request = call.requests[i];
      if (request.sampling.sampling_seed)
        *request.sampling.sampling_seed += static_cast<std::uint64_t>(copy);
      call.requests.push_back(std::move(request));
    }
  }
  name_requests(call, num_prompts, body, fields);
  if (!problems.empty()) throw ConfigError(problems);
  return call;
}

SamplingParams sampling_defaults_of(const std::filesystem::path& model_directory) {
  SamplingParams params;
  const std::filesystem::path path = model_directory / "generation_config.json";
  if (!std::filesystem::exists(path)) return params;
  const json::value value = read_json_file(path, std::size_t{1} << 20);
  if (!value.is_object()) throw ConfigError(path.string() + ": must be a JSON object");
  std::vector<std::string> problems;
  FieldReader fields(value.get_object(), path.string() + ": ", problems);
  params.temperature = fields.number("temperature").value_or(params.temperature);
  params.top_p = fields.number("top_p").value_or(params.top_p);
  params.min_p = fields.number("min_p").value_or(params.min_p);
  params.repetition_penalty =
      fields.number("repetition_penalty").value_or(params.repetition_penalty);
  params.top_k = fields.integer("top_k", -1, RequestLimits::kMaxTokens).value_or(params.top_k);
  if (params.top_k == 0) params.top_k = -1;  // transformers' word for "all"
  if (params.top_p == 0) {                   // and for "the best alone"
    params.top_p = 1;
    params.top_k = 1;
  }
  constexpr std::int64_t kAnyVocabulary = std::int64_t{1} << 31;  // no ids are among them
  for (const std::string& problem : problems_of(params, kAnyVocabulary))
    problems.push_back(path.string() + ": " + problem);
  if (!problems.empty()) throw ConfigError(problems);
  return params;
}

}  // namespace slime::engine
