#pragma once

/// Training data of an answer, for protocols that have no place of their own for it.

#include <vector>

#include "core/json.h"
#include "engine/chat/chat_choice.h"
#include "engine/http/openai_answer.h"

namespace slime::engine {

/// weight_version; as far as the request asked for it token_ids with token_logprobs, prompt_token_ids,
/// weight_versions by ranges of tokens, meta_info.
json::object training_fields(const ChatChoice& choice, const OpenAiForm& form,
                             const std::vector<TokenId>& prompt_ids, const VersionNamer& namer);

/// Tokens that are returned are returned with their log-probs. After the fields of both are read.
void ask_for_training_fields(const OpenAiForm& form, GenerateRequest& request);

}  // namespace slime::engine
