#pragma once

/// Log-probs in the two forms of OpenAI's replies.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "engine/client.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {

/// Tokens of one choice and what the engine said of each.
struct ChoiceTokens {
  std::string prompt_text;          // with echo
  std::vector<TokenId> prompt_ids;  // only when something of it is returned
  std::vector<std::optional<float>> input_log_probs;
  TopLogProbs input_top;
  std::vector<TokenId> ids;
  std::vector<float> log_probs;
  TopLogProbs top;

  void add(const GenerateUpdate& update);
};

/// How far the log-probs of a choice were told.
struct TextPosition {
  TextPosition(const text::Tokenizer& tokenizer, bool skips_special_tokens)
      : decoder(tokenizer, skips_special_tokens) {}
  bool has_prompt = false;          // echoed tokens were told
  std::size_t num_ids = 0;          // of the response
  std::size_t text_offset = 0;      // characters before the next token
  text::StreamDetokenizer decoder;  // of the response
};

/// JSON has no infinity: an impossible token has the lowest float.
json::value log_prob_number(float log_prob);

/// Of the tokens from `first` on: {"content": [...], "refusal": null}.
json::value chat_logprobs(const ChoiceTokens& tokens, std::size_t first,
                          const text::Tokenizer& tokenizer);

struct CompletionLogprobsForm {
  bool echoes = false;  // the prompt's tokens come first
  bool has_top = false;
};

/// Four parallel lists of the tokens after `position`, which moves on. An offset is the number of
/// characters of the choice's text before the token, over all chunks of a stream.
json::value completion_logprobs(const ChoiceTokens& tokens, TextPosition& position,
                                const CompletionLogprobsForm& form,
                                const text::Tokenizer& tokenizer);

}  // namespace slime::engine
