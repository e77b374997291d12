#pragma once

/// Texts of one prompt: the prompt, responses that run and responses that ended, in a suffix index that is filled in
/// pieces, so that a step never waits for a long prompt or for a new index.

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/drafts/suffix_index.h"

namespace slime::engine {

class PromptTexts {
 public:
  /// Of ended responses. A match looks at 32 places, so more than two groups of that many say little more.
  static constexpr int64_t kMostEnded = 64;

  struct Response {
    int64_t text = 0;       // number in the index
    int64_t next_text = 0;  // in the index that will replace it; 0, which is the prompt's: not yet
  };
  using Handle = std::list<Response>::iterator;

  PromptTexts(std::span<const TokenId> prompt, std::string_view salt);
  PromptTexts(const PromptTexts&) = delete;
  PromptTexts& operator=(const PromptTexts&) = delete;

  std::span<const TokenId> prompt() const { return prompt_; }
  const std::string& salt() const { return salt_; }

  Handle begin();
  /// The response stays among those that ended. When there are more than kMostEnded, the older half is left out of a
  /// new index, which replaces the old one when it has all the others.
  void end(Handle response);
  /// Leaves out all responses that ended, for their memory. Running ones and the prompt are indexed anew.
  void forget_ended();
  bool is_running() const { return !running_.empty(); }

  /// Appends what is new in a response, and goes on with the prompt and the new index: 64 tokens a call in all, which
  /// take about 10 microseconds.
  void follow(Handle response, std::span<const TokenId> tokens);
  bool is_full() const;

  const SuffixIndex& index() const { return *index_; }
  int64_t num_ended() const { return std::ssize(ended_); }
  int64_t num_bytes() const;

 private:
  /// Appends to `index` what it lacks of the prompt, its text 0, `budget` tokens at most. Returns what is left of that.
  int64_t index_prompt(SuffixIndex& index, int64_t budget) const;
  void fill_next(int64_t budget);

  std::vector<TokenId> prompt_;
  std::string salt_;
  std::unique_ptr<SuffixIndex> index_;
  std::unique_ptr<SuffixIndex> next_;  // lacks the oldest responses; not there most of the time
  std::list<Response> running_;
  std::list<Response> ended_;  // oldest first
};

}  // namespace slime::engine
