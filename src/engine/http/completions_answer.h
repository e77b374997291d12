#pragma once

/// Answer of /v1/completions: the text of responses as OpenAI's JSON.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/http/completions_request.h"
#include "engine/http/openai_answer.h"
#include "engine/http/openai_logprobs.h"
#include "engine/http/output_text.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {

/// One choice: {"index", "text", "logprobs", "finish_reason", ...}.
class CompletionsChoice final {
 public:
  /// `call` outlives the object, but for its requests, and the tokenizer does.
  CompletionsChoice(const CompletionsCall& call, std::size_t index,
                    const text::Tokenizer& tokenizer);

  void add(const GenerateUpdate& update);
  const std::optional<FinishReason>& finish() const { return last_.finish; }
  ChoiceFacts facts() const { return {tokens_, last_, versions_}; }

  json::object whole(const VersionNamer& namer) const;
  /// What is new since the last chunk, as a stream's choice. Nothing when there is nothing to tell.
  std::optional<json::object> next_chunk();

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
  void add_end(json::object& choice) const;

  const OpenAiForm& form_;
  const EchoedPrompt* echoed_;
  std::size_t index_;
  const text::Tokenizer& tokenizer_;
  OutputText text_;
  bool skips_special_tokens_;
  std::vector<TokenId> stop_token_ids_;
  std::vector<TokenId> prompt_ids_;  // only when something of it is returned
  ChoiceTokens tokens_;
  std::vector<VersionRun> versions_;
  GenerateUpdate last_;  // without its tokens
  Sent sent_;
};

/// `call` outlives the answer, but for its requests.
std::unique_ptr<OpenAiAnswer> make_completions_answer(const CompletionsCall& call,
                                                      const text::Tokenizer& tokenizer,
                                                      VersionNamer namer);

}  // namespace slime::engine
