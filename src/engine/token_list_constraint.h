#pragma once

/// Constraint of a response to a list of token ids, and away from words: vLLM's allowed_token_ids and
/// bad_words, alone or next to a grammar.

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/token_constraint.h"

namespace slime::text {
class Tokenizer;
}

namespace slime::engine {

/// Allowed token ids and banned token sequences of one request.
struct TokenLists {
  std::vector<TokenId> allowed_ids;               // empty: all
  std::vector<std::vector<TokenId>> banned_runs;  // tokens that do not follow one another
  /// No response ends before so many tokens; without a grammar, which says itself where it may.
  std::vector<TokenId> end_ids;
  int64_t min_tokens = 0;
};

/// Of a request with such lists. `tokenizer` is needed for words. Throws ConfigError where a word has no
/// tokens.
TokenLists token_lists_of(const GenerateRequest& request, std::span<const TokenId> eos_ids,
                          const text::Tokenizer* tokenizer);

class TokenListConstraint final : public TokenConstraint {
 public:
  /// `grammar` may be null. Masks are of `vocab_size` ids.
  TokenListConstraint(TokenLists lists, int64_t vocab_size,
                      std::unique_ptr<TokenConstraint> grammar);

  void accept(TokenId token) override;
  Allowed allow(std::span<uint32_t> words) override;
  bool is_quick() const override { return grammar_ == nullptr || grammar_->is_quick(); }
  std::string problem() const override { return problem_; }
  bool is_over() const override { return grammar_ != nullptr && grammar_->is_over(); }

 private:
  void ban_ends_of_runs(std::span<uint32_t> words) const;

  const TokenLists lists_;
  const int64_t vocab_size_;
  const std::unique_ptr<TokenConstraint> grammar_;
  std::vector<uint32_t> allowed_W_;  // of the list; empty: all
  std::size_t longest_run_ = 0;
  std::deque<TokenId> last_;  // as many as a run may begin with
  int64_t num_tokens_ = 0;
  std::string problem_;
};

}  // namespace slime::engine
