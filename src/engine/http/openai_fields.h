#pragma once

/// Fields that OpenAI's chat completions and completions share, with those of SGLang's and vLLM's
/// clients.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/field_reader.h"
#include "engine/client.h"
#include "engine/http/request_fields_table.h"
#include "engine/http/served_model.h"

namespace slime::engine {

/// What an answer holds.
struct OpenAiForm {
  std::string model;  // echoed
  std::size_t n = 1;
  bool streams = false;
  bool includes_usage = false;         // a last chunk with the totals
  bool includes_usage_always = false;  // totals so far in each chunk
  bool returns_logprobs = false;
  int64_t num_top_logprobs = 0;
  bool returns_meta_info = false;
  bool returns_token_ids = false;
  bool returns_prompt_token_ids = false;
  bool returns_weight_versions = false;
  bool writes_tokens_as_ids = false;           // "token_id:17" in log-probs
  std::optional<int64_t> num_prompt_logprobs;  // the best of each position, next to its token
  bool includes_reasoning = true;              // chats: thoughts are in the answer
};

/// Reads them into the form and the request of the engine, whose prompt is not among them.
void read_openai_fields(const FieldReader& fields, const ServedModel& model, OpenAiForm& form,
                        GenerateRequest& request);

/// Log-probs of the prompt and of the response, after the fields of both are read.
void ask_for_logprobs(const OpenAiForm& form, GenerateRequest& request);

/// A misspelt field is a problem, and one that only another route has. All others that the protocol does
/// not have are returned: nothing comes of them.
std::vector<std::string> ignored_fields(const FieldReader& fields, Protocols protocol);

/// The value of the header x-slime-ignored-fields.
std::string ignored_fields_header(const std::vector<std::string>& names);

}  // namespace slime::engine
