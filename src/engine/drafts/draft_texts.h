#pragma once

/// Texts of an engine that drafts are taken from: of each prompt its responses, running and ended, within a bound in
/// bytes (docs/decisions/0163-drafts.md, 3).
///
/// A prompt is its tokens, compared whole, and a salt: whatever else makes equal tokens mean something else, such as
/// an adapter. Prompts without running responses are dropped when memory is short, least recently used first. Where
/// that is not enough, texts do not grow: drafts then come from what is there, until too many responses to a running
/// prompt ended, which all go.
///
///   auto text = texts.begin(prompt, salt);
///   text->follow(response);          // each step, when its tokens are settled
///   text->propose(7, drafts);
///   text.reset();                    // the response ended; its text stays
///
/// One thread, which also drops the last handle of each text. Texts may outlive the DraftTexts.

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/token_span.h"
#include "engine/drafts/draft.h"
#include "engine/drafts/prompt_texts.h"

namespace slime::engine {

class DraftTexts {
 private:
  struct Store;

 public:
  /// A running response.
  class Text {
   public:
    Text(std::shared_ptr<Store> store, std::list<PromptTexts>::iterator prompt);
    ~Text();
    Text(const Text&) = delete;
    Text& operator=(const Text&) = delete;

    /// `response` is all of the response that is settled: what an earlier call was given, and more. At most 64 tokens
    /// are indexed a call; a longer response, such as a resumed one, catches up in later calls. One that is shorter
    /// than before, whose end was cut off, leaves the text as it is.
    void follow(std::span<const TokenId> response);
    /// Replaces `out` by at most `most` drafts of what follows the response given last.
    void propose(int64_t most, std::vector<Draft>& out) const;

   private:
    std::shared_ptr<Store> store_;
    std::list<PromptTexts>::iterator prompt_;
    PromptTexts::Handle response_;
    std::array<TokenId, SuffixIndex::kContext> context_;  // the last num_context_ tokens
    int64_t num_context_ = 0;
  };

  explicit DraftTexts(int64_t limit_bytes);

  std::shared_ptr<Text> begin(std::span<const TokenId> prompt, std::string_view salt);

  int64_t num_bytes() const;
  int64_t num_prompts() const;

 private:
  std::shared_ptr<Store> store_;
};

}  // namespace slime::engine
