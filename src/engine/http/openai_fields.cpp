#include "engine/http/openai_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/nearest_name.h"
#include "engine/http/adapter_fields.h"
#include "engine/http/generate_request.h"
#include "engine/http/grammar_fields.h"
#include "engine/sampling_json.h"

namespace slime::engine {
namespace {

using Limits = RequestLimits;

constexpr std::size_t kMostNamedFields = 32;
constexpr std::size_t kLongestNamedField = 64;

/// Fields that mean something on other routes alone: a client that sends them here expects it.
constexpr auto kFieldsElsewhere = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"sampling_params", "/generate"},
    {"text", "/generate"},
    {"return_logprob", "/generate"},
    {"max_new_tokens", "/generate, where it stands in sampling_params; send max_tokens"},
    {"prompt", "/v1/completions"},
    {"messages", "/v1/chat/completions"},
    {"input", "/v1/responses"},
    {"max_output_tokens", "/v1/responses; send max_tokens"},
    {"stop_sequences", "/v1/messages; send stop"},
});

std::string read_rid(const FieldReader& fields) {
  const char* name = fields.has("rid") ? "rid" : "request_id";
  return fields.text(name, Limits::kMaxRidBytes).value_or("");
}

}  // namespace

void read_openai_fields(const FieldReader& fields, const ServedModel& model, OpenAiForm& form,
                        GenerateRequest& request) {
  const auto flag = [&](const char* name) { return fields.boolean(name).value_or(false); };
  request.sampling = model.sampling_defaults;
  form.model = fields.text("model", 1024).value_or("default");
  take_adapter_of_model(model, form.model, request);
  if (const auto name = fields.text("lora_path", 256)) take_adapter_named(model, *name, request);
  form.n = static_cast<std::size_t>(fields.integer("n", 1, Limits::kMaxN).value_or(1));
  form.streams = flag("stream");
  if (const auto options = fields.fields("stream_options")) {
    form.includes_usage = options->boolean("include_usage").value_or(false);
    form.includes_usage_always = options->boolean("continuous_usage_stats").value_or(false);
  }
  form.returns_meta_info = flag("return_meta_info");
  form.returns_token_ids = flag("return_token_ids");
  form.returns_prompt_token_ids = flag("return_prompt_token_ids");
  form.returns_weight_versions = flag("return_weight_versions");
  form.writes_tokens_as_ids = flag("return_tokens_as_token_ids");
  request.return_free_logprobs = flag("return_free_logprobs");
  form.num_prompt_logprobs = fields.integer("prompt_logprobs", 0, Limits::kMaxTopLogprobs);
  request.rid = read_rid(fields);
  request.cache_salt = joined_salt(fields.text("cache_salt", Limits::kMaxSaltBytes).value_or(""),
                                   fields.text("extra_key", Limits::kMaxSaltBytes).value_or(""));
  read_sampling_params(fields, SamplingNames::kOpenAi, model.vocab_size, request.sampling);
  if (flag("include_stop_str_in_output")) request.sampling.no_stop_trim = true;
  refuse_unsupported(fields, kOpenAi);
  read_grammar_fields(fields, request);
  if (const auto penalty = fields.number("length_penalty"))
    fields.expect(*penalty == 1, "length_penalty", "must be 1: there is no beam search");
}

void ask_for_logprobs(const OpenAiForm& form, GenerateRequest& request) {
  request.return_logprob = form.returns_logprobs || form.num_prompt_logprobs.has_value();
  request.top_logprobs_num = std::max(form.returns_logprobs ? form.num_top_logprobs : 0,
                                      form.num_prompt_logprobs.value_or(0));
  if (form.num_prompt_logprobs) request.logprob_start_len = 0;
}

std::vector<std::string> ignored_fields(const FieldReader& fields, Protocols protocol) {
  const std::vector<std::string_view> known = known_fields(protocol);
  std::vector<std::string> ignored;
  for (const auto& [key, value] : fields.raw()) {
    const std::string_view name = key;
    if (std::ranges::find(known, name) != known.end()) continue;
    const auto elsewhere = std::ranges::find(kFieldsElsewhere, name,
                                             &std::pair<std::string_view, std::string_view>::first);
    if (elsewhere != kFieldsElsewhere.end()) {
      fields.note(name, fmt::format("is unknown here: it is a field of {}", elsewhere->second));
    } else if (const auto meant = nearest_name(name, known)) {
      fields.note(name, fmt::format("is unknown; did you mean {}?", *meant));
    } else if (!value.is_null()) {
      ignored.emplace_back(name);
    }
  }
  return ignored;
}

std::string ignored_fields_header(const std::vector<std::string>& names) {
  std::string header;
  std::size_t count = 0;
  for (const std::string& name : names) {
    const bool is_plain =
        name.size() <= kLongestNamedField && std::ranges::all_of(name, [](unsigned char byte) {
          return std::isalnum(byte) != 0 || byte == '_' || byte == '-' || byte == '.';
        });
    if (!header.empty()) header += ", ";
    if (++count > kMostNamedFields) return header + "...";
    header += is_plain && !name.empty() ? name : "?";
  }
  return header;
}

}  // namespace slime::engine
