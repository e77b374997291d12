#pragma once

/// Reader of tokenizer_config.json and special_tokens_map.json, for what they add to a tokenizer: names of
/// special tokens, and added tokens that tokenizer.json does not have, as `transformers` combines
/// them.

#include <string_view>

#include "core/json.h"
#include "text/tokenizer/tokenizer_definition.h"

namespace slime::text {

/// `config` and `special_tokens_map` are null when there is no such file. The chat template and all
/// that does not concern tokens is ignored here, and so are add_bos_token and
/// clean_up_tokenization_spaces: the post-processor and the decoder of tokenizer.json decide.
/// Throws ConfigError, lines starting with `where`.
void apply_tokenizer_config(const json::value& config, const json::value& special_tokens_map,
                            std::string_view where, TokenizerDefinition& definition);

}  // namespace slime::text
