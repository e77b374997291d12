#pragma once

/// OpenAI's reply objects, whole and as stream chunks, from the updates of a call's requests.

#include <string>
#include <vector>

#include "engine/client.h"
#include "engine/http/openai_logprobs.h"
#include "engine/http/openai_request.h"
#include "engine/http/output_text.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {

/// One choice of the reply: what its request has produced so far.
class OpenAiChoice {
 public:
  /// `prompt_text` is what `echo` shows, empty otherwise. The tokenizer outlives the object.
  OpenAiChoice(const OpenAiCall& call, std::size_t index, const text::Tokenizer& tokenizer);

  void add(const GenerateUpdate& update);

  const std::optional<FinishReason>& finish() const { return last_.finish; }
  std::int64_t num_output() const { return static_cast<std::int64_t>(tokens_.ids.size()); }
  const GenerateUpdate& last_update() const { return last_; }

  json::object whole(const std::string& version_name) const;
  /// What is new since the last chunk, as a stream's choice. Nothing when there is nothing to tell.
  std::optional<json::object> next_chunk();
  /// Chat streams begin with the role.
  json::object first_chunk() const;

 private:
  /// What the chunks of a stream have told.
  struct Sent {
    TextPosition log_probs;
    std::size_t num_text = 0;  // bytes of the visible text
    bool has_prompt = false;
    bool has_ended = false;  // the chunk with finish_reason was taken
  };

  TextPosition text_start() const;
  /// Of the tokens after `position`, which moves on.
  json::value logprobs(TextPosition& position) const;
  json::value finish_word() const;
  json::value matched_stop() const;

  const OpenAiCall& form_;  // outlives the object; its requests may be gone
  std::size_t index_;
  const text::Tokenizer& tokenizer_;
  OutputText text_;
  bool skips_special_tokens_;
  ChoiceTokens tokens_;
  GenerateUpdate last_;  // its counters and finish; the token columns are in tokens_
  Sent sent_;
};

/// {"prompt_tokens":..,"completion_tokens":..,"total_tokens":..}: each prompt counts once, however
/// many choices it has.
json::object usage_of(const OpenAiCall& call, const std::vector<OpenAiChoice>& choices);

}  // namespace slime::engine
