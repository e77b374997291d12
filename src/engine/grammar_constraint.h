#pragma once

/// Constraint of one response by a grammar, which begins where its thoughts end.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/client.h"
#include "engine/token_constraint.h"
#include "text/grammar/grammar_matcher.h"

namespace slime::text {
class Tokenizer;
}

namespace slime::engine {

/// Of all constraints of a source.
struct MaskCounts {
  std::atomic<int64_t> num_masks{0};
  std::atomic<int64_t> nanoseconds{0};
};

/// One class because a response has one phase after another, and the grammar's matcher through all of them.
class GrammarConstraint final : public TokenConstraint {
 public:
  /// `field`: what messages call the grammar. `end_ids` end a response, which they may not inside of
  /// thoughts. `tokenizer` outlives the object.
  GrammarConstraint(std::shared_ptr<const text::CompiledGrammar> grammar, std::string field,
                    const FreeThoughts& thoughts, std::vector<TokenId> end_ids,
                    const text::Tokenizer& tokenizer, std::chrono::milliseconds mask_limit,
                    std::shared_ptr<MaskCounts> counts = std::make_shared<MaskCounts>());

  void accept(TokenId token) override;
  Allowed allow(std::span<uint32_t> words) override;
  bool is_quick() const override { return phase_ == Phase::kThinking; }
  std::string problem() const override { return problem_; }
  bool is_over() const override { return is_over_; }

 private:
  enum class Phase : uint8_t {
    kMayThink,  // in front of the first token, which may open thoughts
    kThinking,
    kBound,
  };
  void think(TokenId token);
  void accept_bound(TokenId token);
  text::GrammarMatcher::Allowed next_mask(std::span<uint32_t> words);

  text::GrammarMatcher matcher_;
  const std::string field_;
  const std::vector<TokenId> end_ids_;
  const text::Tokenizer& tokenizer_;
  const std::chrono::milliseconds mask_limit_;
  const std::shared_ptr<MaskCounts> counts_;
  Phase phase_ = Phase::kBound;
  TokenId opening_id_ = -1;
  TokenId closing_id_ = -1;  // of a mark that is a special token; else its text counts
  std::string closing_;
  std::string thought_;  // its end
  std::string problem_;
  bool is_over_ = false;
};

}  // namespace slime::engine
