#pragma once

/// Log-probs in the forms of OpenAI's answers, and of vLLM's.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "engine/chat/choice_tokens.h"
#include "engine/client.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {

/// How far the log-probs of a choice were told.
struct TextPosition {
  TextPosition(const text::Tokenizer& tokenizer, bool skips_special_tokens)
      : decoder(tokenizer, skips_special_tokens) {}
  bool has_prompt = false;          // echoed tokens were told
  std::size_t num_ids = 0;          // of the response
  std::size_t text_offset = 0;      // characters before the next token
  text::StreamDetokenizer decoder;  // of the response
};

struct LogprobsForm {
  int64_t num_top = 0;      // of each position, of those that the engine gave
  bool writes_ids = false;  // a token is "token_id:17", not its text
};

/// JSON has no infinity: an impossible token has the lowest float.
json::value log_prob_number(float log_prob);

/// Of the tokens [first, last): [{"token", "bytes", "logprob", "top_logprobs"}].
json::array chat_logprob_entries(const ChoiceTokens& tokens, std::size_t first, std::size_t last,
                                 const LogprobsForm& form, const text::Tokenizer& tokenizer);

/// Of the tokens from `first` on: {"content": [...], "refusal": null}.
json::value chat_logprobs(const ChoiceTokens& tokens, std::size_t first, const LogprobsForm& form,
                          const text::Tokenizer& tokenizer);

/// A prompt that is part of the answer, whose tokens come first.
struct EchoedPrompt {
  std::string text;
  std::vector<TokenId> ids;
};

/// Four parallel lists of the tokens after `position`, which moves on. An offset is the number of
/// characters of the choice's text before the token, over all chunks of a stream.
json::value completion_logprobs(const ChoiceTokens& tokens, const EchoedPrompt* echoed,
                                TextPosition& position, const LogprobsForm& form,
                                const text::Tokenizer& tokenizer);

/// vLLM's: for each token of the prompt {"17": {"logprob", "rank", "decoded_token"}, ...}, itself and
/// the best of its position; null for the first one.
json::value prompt_logprobs(const std::vector<TokenId>& prompt, const ChoiceTokens& tokens,
                            int64_t num_top, const text::Tokenizer& tokenizer);

}  // namespace slime::engine
