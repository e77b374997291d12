#include "engine/http/request_fields_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "engine/sampling_json.h"

namespace slime::engine {
namespace {

using Limits = RequestLimits;
using enum FieldType;

constexpr std::string_view kTextOnly = "is refused: this engine serves text models";
constexpr std::string_view kNoSessions =
    "is refused: sessions are not supported; send the whole prompt, its prefix is cached";
constexpr std::string_view kNotSupported = "is not supported";

constexpr bool kPerPrompt = true;

constexpr RequestField done(std::string_view name, Protocols protocols, FieldType type = kAny) {
  return {.name = name, .protocols = protocols, .type = type};
}
constexpr RequestField whole(std::string_view name, Protocols protocols, int64_t low, int64_t high,
                             bool is_per_prompt = false) {
  return {.name = name,
          .protocols = protocols,
          .type = kInteger,
          .low = low,
          .high = high,
          .is_per_prompt = is_per_prompt};
}
/// A list may stand for it, with one for each prompt. `high`: bytes of a text, members of a list.
constexpr RequestField each(std::string_view name, Protocols protocols, FieldType type,
                            int64_t high = std::numeric_limits<int64_t>::max()) {
  return {.name = name,
          .protocols = protocols,
          .type = type,
          .high = high,
          .is_per_prompt = kPerPrompt};
}
constexpr RequestField ignored(std::string_view name, Protocols protocols) {
  return {.name = name, .protocols = protocols, .use = FieldUse::kIgnored};
}
constexpr RequestField refused(std::string_view name, Protocols protocols, std::string_view why) {
  return {.name = name, .protocols = protocols, .use = FieldUse::kRefused, .why = why};
}

constexpr auto kTable = std::to_array<RequestField>({
    // /generate: what is generated from, and what is told of it.
    done("text", kGenerate),
    done("input_ids", kGenerate),
    each("sampling_params", kGenerate, kObject),
    each("rid", kGenerate, kText, Limits::kMaxRidBytes),
    done("stream", kGenerate, kBoolean),
    each("return_logprob", kGenerate, kBoolean),
    whole("logprob_start_len", kGenerate, -1, Limits::kMaxTokens, kPerPrompt),
    whole("top_logprobs_num", kGenerate, 0, Limits::kMaxSamplerHead, kPerPrompt),
    each("token_ids_logprob", kGenerate, kTokenIds, Limits::kMaxLogprobIds),
    each("return_free_logprobs", kGenerate, kBoolean),
    done("return_text_in_logprobs", kGenerate, kBoolean),
    done("return_prompt_token_ids", kGenerate, kBoolean),
    each("return_routed_experts", kGenerate, kBoolean),
    whole("routed_experts_start_len", kGenerate, 0, Limits::kMaxTokens, kPerPrompt),
    // Ours: the last tokens of input_ids were drawn before, by this request.
    whole("num_sampled", kGenerate, 0, Limits::kMaxTokens, kPerPrompt),
    each("cache_salt", kGenerate, kText, Limits::kMaxSaltBytes),
    each("extra_key", kGenerate, kText, Limits::kMaxSaltBytes),
    refused("input_embeds", kGenerate, kTextOnly),
    refused("image_data", kGenerate, kTextOnly),
    refused("video_data", kGenerate, kTextOnly),
    refused("audio_data", kGenerate, kTextOnly),
    each("lora_path", kGenerate, kText, 256),
    refused("custom_logit_processor", kGenerate, "is refused: it would run code of the client"),
    refused("session_params", kGenerate, kNoSessions),
    refused("return_hidden_states", kGenerate, kNotSupported),
    refused("return_indexer_topk", kGenerate, kNotSupported),
    refused("return_entropy", kGenerate, kNotSupported),
    // Where a request is computed, who asks, how it is logged.
    ignored("session_id", kGenerate),
    ignored("modalities", kGenerate),
    ignored("bootstrap_host", kGenerate),
    ignored("bootstrap_port", kGenerate),
    ignored("bootstrap_room", kGenerate),
    ignored("bootstrap_pair_key", kGenerate),
    ignored("routed_dp_rank", kGenerate),
    ignored("data_parallel_rank", kGenerate),
    ignored("disagg_prefill_dp_rank", kGenerate),
    ignored("routing_key", kGenerate),
    ignored("priority", kGenerate),
    ignored("conversation_id", kGenerate),
    ignored("no_logs", kGenerate),
    ignored("custom_labels", kGenerate),
    ignored("external_trace_header", kGenerate),
    ignored("background", kGenerate),
    ignored("return_bytes", kGenerate),
    ignored("log_metrics", kGenerate),
    ignored("model", kGenerate),

    // sampling_params of /generate, next to the sampling parameters.
    whole("n", kSampling, 1, Limits::kMaxN),
    whole("stream_interval", kSampling, 1, Limits::kMaxTokens),
    done("custom_params", kSampling, kObject),
    refused("stop_regex", kSampling, "is not supported; stop takes strings"),

    // OpenAI's and Anthropic's: read in openai_fields.cpp, which knows their types.
    done("model", kOpenAi),
    done("n", kOpenAi),
    done("stream", kOpenAi),
    done("stream_options", kOpenAi),
    done("logprobs", kOpenAi),
    done("rid", kOpenAi),
    done("return_meta_info", kOpenAi),
    done("return_token_ids", kOpenAi),
    done("return_prompt_token_ids", kOpenAi),
    done("cache_salt", kOpenAi),
    done("extra_key", kOpenAi),
    // Read in grammar_fields.cpp.
    done("response_format", kOpenAi),
    done("structured_outputs", kOpenAi | kTokenSampling),
    done("guided_json", kOpenAi),
    done("guided_regex", kOpenAi),
    done("guided_choice", kOpenAi),
    done("guided_grammar", kOpenAi),
    done("guided_json_object", kOpenAi),
    done("guided_whitespace_pattern", kOpenAi),
    ignored("guided_decoding_backend", kOpenAi),
    done("return_free_logprobs", kOpenAi),
    done("request_id", kOpenAi),
    done("return_tokens_as_token_ids", kOpenAi),
    done("return_weight_versions", kOpenAi),
    done("include_stop_str_in_output", kOpenAi),
    done("add_special_tokens", kOpenAi),
    done("truncate_prompt_tokens", kOpenAi),
    done("prompt_logprobs", kOpenAi),
    done("length_penalty", kOpenAi),
    done("prompt", kCompletions),
    done("echo", kCompletions),
    done("best_of", kCompletions),
    // Of all chats: read in chat_fields.cpp.
    done("tools", kChats),
    done("tool_choice", kChats),
    done("parallel_tool_calls", kChats),
    done("chat_template_kwargs", kChats),
    done("documents", kChats),
    done("reasoning_effort", kChats),
    done("continue_final_message", kChats),
    done("add_generation_prompt", kChats),
    done("separate_reasoning", kChats),
    done("stream_reasoning", kChats),
    done("include_reasoning", kChats),
    refused("chat_template", kChats, "is refused: the model's own is used"),
    refused("thinking_token_budget", kChats, kNotSupported),
    // chat_completions_request.cpp
    done("messages", kChatCompletions | kMessages),
    done("input_ids", kChatCompletions),
    done("max_completion_tokens", kChatCompletions),
    done("top_logprobs", kChatCompletions | kResponses),
    done("modalities", kChatCompletions),
    done("thinking", kChatCompletions | kMessages),
    refused("echo", kChatCompletions,
            "is not supported; continue_final_message goes on with a message"),
    // responses/responses_request.cpp
    done("instructions", kResponses),
    done("input", kResponses),
    done("reasoning", kResponses),
    done("text", kResponses),
    done("include", kResponses),
    done("max_output_tokens", kResponses),
    done("previous_response_id", kResponses),
    done("metadata", kResponses),
    refused("background", kResponses, "is not supported: the answer is not kept"),
    refused("conversation", kResponses, "is not supported: this server keeps no items"),
    refused("prompt", kResponses, "is not supported: this server keeps no prompts"),
    ignored("truncation", kResponses),
    ignored("max_tool_calls", kResponses),
    ignored("client_metadata", kResponses),
    ignored("context_management", kResponses | kMessages),
    // anthropic/anthropic_request.cpp
    done("system", kMessages),
    done("stop_sequences", kMessages),
    done("output_config", kMessages),
    done("output_format", kMessages),
    refused("mcp_servers", kMessages, "is not supported: this server connects to no others"),
    ignored("cache_control", kMessages),
    ignored("container", kMessages),
    ignored("betas", kMessages),
    ignored("inference_geo", kMessages),
    ignored("speed", kMessages),
    refused("stop_regex", kOpenAi, "is not supported; stop takes strings"),
    done("lora_path", kOpenAi),
    refused("session_params", kOpenAi, kNoSessions),
    refused("return_hidden_states", kOpenAi, kNotSupported),
    refused("return_routed_experts", kOpenAi, kNotSupported),
    refused("custom_logit_processor", kOpenAi, "is refused: it would run code of the client"),
    refused("use_beam_search", kOpenAi, kNotSupported),
    refused("functions", kChatCompletions, "is not supported; use tools"),
    refused("function_call", kChatCompletions, "is not supported; use tool_choice"),
    refused("audio", kChatCompletions, kTextOnly),
    refused("web_search_options", kChatCompletions, kNotSupported),
    refused("suffix", kCompletions, kNotSupported),
    // Who asks, what is kept or billed, where a request is computed, how it is logged.
    ignored("user", kOpenAi),
    ignored("store", kOpenAi),
    ignored("metadata", kChatCompletions | kCompletions | kMessages),
    ignored("service_tier", kOpenAi),
    ignored("safety_identifier", kOpenAi),
    ignored("prompt_cache_key", kOpenAi),
    ignored("prompt_cache_retention", kOpenAi),
    ignored("prompt_cache_options", kOpenAi),
    ignored("prediction", kOpenAi),
    ignored("verbosity", kOpenAi),
    ignored("moderation", kOpenAi),
    ignored("session_id", kOpenAi),
    ignored("routing_key", kOpenAi),
    ignored("routed_dp_rank", kOpenAi),
    ignored("data_parallel_rank", kOpenAi),
    ignored("priority", kOpenAi),
    ignored("no_logs", kOpenAi),
    ignored("custom_labels", kOpenAi),
    ignored("log_metrics", kOpenAi),
    ignored("conversation_id", kOpenAi),

    // vLLM's token route: read in token_route_request.cpp.
    done("token_ids", kTokenRoute),
    done("sampling_params", kTokenRoute),
    done("model", kTokenRoute),
    done("request_id", kTokenRoute),
    done("return_token_ids", kTokenRoute),
    done("output_mode", kTokenRoute),
    done("stream", kTokenRoute),
    done("stream_options", kTokenRoute),
    done("cache_salt", kTokenRoute),
    refused("features", kTokenRoute, kTextOnly),
    refused("content_parts", kTokenRoute, kTextOnly),
    refused("kv_transfer_params", kTokenRoute, kNotSupported),
    refused("ec_transfer_params", kTokenRoute, kNotSupported),
    ignored("token_offsets", kTokenRoute),
    ignored("reasoning_ended", kTokenRoute),
    ignored("reasoning_parser_kwargs", kTokenRoute),
    ignored("priority", kTokenRoute),
    done("n", kTokenSampling),
    done("logprobs", kTokenSampling),
    done("prompt_logprobs", kTokenSampling),
    done("include_stop_str_in_output", kTokenSampling),
    done("routed_experts_prompt_start", kTokenSampling),
    done("return_sampling_mask", kTokenSampling),
    done("return_free_logprobs", kTokenSampling),
    refused("logits_processors", kTokenSampling, kNotSupported),
    refused("truncate_prompt_tokens", kTokenSampling, kNotSupported),
    ignored("detokenize", kTokenSampling),
    ignored("output_kind", kTokenSampling),
    ignored("extra_args", kTokenSampling),
    ignored("best_of", kTokenSampling),
    ignored("skip_reading_prefix_cache", kTokenSampling),

    // /tokenize and /detokenize: read in text_routes.cpp.
    ignored("model", kTokenize | kDetokenize),
    done("prompt", kTokenize),
    done("messages", kTokenize),
    done("tools", kTokenize),
    done("chat_template_kwargs", kTokenize),
    done("add_generation_prompt", kTokenize),
    done("continue_final_message", kTokenize),
    done("add_special_tokens", kTokenize),
    done("return_token_strs", kTokenize),
    refused("chat_template", kTokenize, "is refused: the model's own is used"),
    done("tokens", kDetokenize),
    done("skip_special_tokens", kDetokenize),
});

/// One value of a typed field, which stands under `field.name` in `fields`.
void check_value(const FieldReader& fields, const RequestField& field, int64_t vocab_size) {
  switch (field.type) {
    case kAny:
      break;
    case kBoolean:
      fields.boolean(field.name);
      break;
    case kInteger:
      fields.integer(field.name, field.low, field.high);
      break;
    case kText:
      fields.text(field.name, static_cast<std::size_t>(field.high));
      break;
    case kTokenIds:
      if (fields.token_ids(field.name, vocab_size).size() > static_cast<std::size_t>(field.high))
        fields.note(field.name, fmt::format("may have {} ids", field.high));
      break;
    case kObject:
      fields.object(field.name);
      break;
  }
}

/// Lists are one for each prompt; of a field that is a list itself, lists of lists are.
bool is_one_per_prompt(const json::value& value, const RequestField& field) {
  const json::array* list = field.is_per_prompt ? value.if_array() : nullptr;
  if (list == nullptr) return false;
  return field.type != kTokenIds || std::ranges::any_of(*list, [](const json::value& element) {
           return element.is_array() || element.is_null();
         });
}

}  // namespace

std::span<const RequestField> request_fields() { return kTable; }

std::vector<std::string_view> known_fields(Protocols protocols) {
  std::vector<std::string_view> names;
  if ((protocols & kSampling) != 0) names = sampling_names(SamplingNames::kSglang);
  if ((protocols & (kOpenAi | kTokenSampling)) != 0) names = sampling_names(SamplingNames::kOpenAi);
  for (const RequestField& field : kTable)
    if ((field.protocols & protocols) == protocols) names.push_back(field.name);
  return names;
}

void refuse_unsupported(const FieldReader& fields, Protocols protocols, Protocols told) {
  for (const RequestField& field : kTable) {
    const bool is_told = told != 0 && (field.protocols & told) == told;
    if ((field.protocols & protocols) == protocols && field.use == FieldUse::kRefused && !is_told)
      fields.refuse(field.name, field.why);
  }
}

void check_fields(const FieldReader& fields, Protocols protocol, PromptCount prompts,
                  int64_t vocab_size) {
  for (const RequestField& field : kTable) {
    if ((field.protocols & protocol) == 0 || field.use != FieldUse::kDone) continue;
    const json::value* value = fields.find(field.name);
    if (value == nullptr) continue;
    if (!is_one_per_prompt(*value, field)) {
      check_value(fields, field, vocab_size);
      continue;
    }
    const json::array& list = value->get_array();
    if (!prompts.is_list || list.size() != prompts.count) {
      fields.note(field.name, prompts.is_list
                                  ? fmt::format("is a list and needs one element per prompt ({})",
                                                prompts.count)
                                  : "is a list, and there is one prompt, which is not in a list");
      continue;
    }
    for (const json::value& element : list) {
      const json::object alone{{field.name, element}};
      std::vector<std::string> problems;
      check_value(FieldReader(alone, "", problems), field, vocab_size);
      if (problems.empty()) continue;
      const std::string_view problem(problems.front());
      fields.note(field.name, problem.substr(field.name.size() + 1));
      break;  // one prompt's are enough to read
    }
  }
}

const json::value* value_of_prompt(const json::object& body, std::string_view name,
                                   std::size_t prompt) {
  const auto* field = std::ranges::find_if(kTable, [&](const RequestField& each) {
    return each.name == name && each.is_per_prompt && (each.protocols & kGenerate) != 0;
  });
  check(field != kTable.end(), "a per-prompt field of the table is read");
  const json::value* value = body.if_contains(name);
  if (value != nullptr && is_one_per_prompt(*value, *field)) value = &value->get_array().at(prompt);
  return value == nullptr || value->is_null() ? nullptr : value;
}

}  // namespace slime::engine
