#pragma once

/// SGLang's native request (POST /generate) as our types. `slime generate` reads its lines with the
/// same functions.
///
///   {"text": "1 + 1 =", "sampling_params": {"max_new_tokens": 4, "n": 2}, "return_logprob": true}
///
/// becomes two GenerateRequests. Fields, defaults and batching rules: reference sglang.md
/// section 1.2.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/client.h"
#include "engine/http/request_body.h"
#include "engine/http/request_fields_table.h"
#include "engine/http/served_model.h"

namespace slime::engine {

struct GenerateCall {
  std::vector<GenerateRequest> requests;  // in the order of the answer; every rid is set
  bool is_list = false;                   // the answer is a JSON list: a batch, or n > 1
  bool streams = false;
  bool returns_text_in_logprobs = false;
  bool returns_prompt_token_ids = false;
};

/// Throws ConfigError with every problem, each naming its field.
GenerateCall parse_generate_call(const json::object& body, const ServedModel& model);

/// The same for a form with further fields, which the caller has read and taken out: a misspelt name
/// may have meant one of them.
GenerateCall parse_generate_form(const json::object& body, const ServedModel& model,
                                 std::span<const std::string_view> further_fields);

/// A problem when the request names stop strings and the server has no tokenizer to see them.
void require_tokenizer_for_stop(FieldReader& fields, const ServedModel& model);

/// cache_salt and extra_key as one salt: both have to agree where prefixes are shared.
std::string joined_salt(std::string_view cache_salt, std::string_view extra_key);

/// A request id of 32 hexadecimal digits.
std::string make_rid();

}  // namespace slime::engine
