#include "engine/grammar_constraint.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "text/messages/white_space.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {

GrammarConstraint::GrammarConstraint(std::shared_ptr<const text::CompiledGrammar> grammar,
                                     std::string field, const FreeThoughts& thoughts,
                                     std::vector<TokenId> end_ids, const text::Tokenizer& tokenizer,
                                     std::chrono::milliseconds mask_limit,
                                     std::shared_ptr<MaskCounts> counts)
    : matcher_(std::move(grammar)),
      field_(std::move(field)),
      end_ids_(std::move(end_ids)),
      tokenizer_(tokenizer),
      mask_limit_(mask_limit),
      counts_(std::move(counts)),
      closing_(thoughts.closing) {
  if (closing_.empty()) return;
  const auto closing = tokenizer.id_of(closing_);
  if (closing && tokenizer.is_special(*closing)) closing_id_ = *closing;
  if (thoughts.are_open) {
    phase_ = Phase::kThinking;
    matcher_.begin_behind_text();
    return;
  }
  // A vocabulary that has no token for the mark is not that of a model that thinks.
  const auto opening = tokenizer.id_of(thoughts.opening);
  if (thoughts.opening.empty() || !opening) return;
  opening_id_ = *opening;
  phase_ = Phase::kMayThink;
}

void GrammarConstraint::accept(TokenId token) {
  switch (phase_) {
    case Phase::kMayThink:
      phase_ = token == opening_id_ ? Phase::kThinking : Phase::kBound;
      if (phase_ == Phase::kBound) return accept_bound(token);
      matcher_.begin_behind_text();
      return;
    case Phase::kThinking:
      return think(token);
    case Phase::kBound:
      return accept_bound(token);
  }
}

void GrammarConstraint::think(TokenId token) {
  if (closing_id_ >= 0) {
    if (token == closing_id_) phase_ = Phase::kBound;
    return;
  }
  thought_ += tokenizer_.token_bytes(token);
  const auto at = thought_.find(closing_);
  if (at == std::string::npos) {
    thought_.erase(0, thought_.size() - std::min(thought_.size(), closing_.size() - 1));
    return;
  }
  phase_ = Phase::kBound;
  const std::string_view rest = std::string_view(thought_).substr(at + closing_.size());
  if (!rest.empty() && !matcher_.accept_text(rest) && !text::is_all_white_space(rest))
    problem_ = fmt::format("{}: the token that ends the thoughts goes on with other text", field_);
}

void GrammarConstraint::accept_bound(TokenId token) {
  if (!matcher_.accept(token) && problem_.empty())
    problem_ = fmt::format("{}: the response so far does not follow the grammar", field_);
  is_over_ = matcher_.is_finished();
}

text::GrammarMatcher::Allowed GrammarConstraint::next_mask(std::span<uint32_t> words) {
  const std::chrono::nanoseconds before = matcher_.mask_time();
  const auto said = matcher_.allow(words);
  ++counts_->num_masks;
  counts_->nanoseconds += (matcher_.mask_time() - before).count();
  return said;
}

TokenConstraint::Allowed GrammarConstraint::allow(std::span<uint32_t> words) {
  if (!problem_.empty()) return Allowed::kNone;
  if (phase_ == Phase::kThinking) {
    // An end in here would leave the grammar out.
    std::ranges::fill(words, ~uint32_t{0});
    for (const TokenId id : end_ids_)
      words[static_cast<std::size_t>(id / 32)] &= ~(1U << (id % 32));
    return Allowed::kSome;
  }
  using Said = text::GrammarMatcher::Allowed;
  const Said said = next_mask(words);
  if (matcher_.mask_time() > mask_limit_) {
    problem_ =
        fmt::format("{}: the masks of this grammar took more than {} s; a simpler one would do",
                    field_, mask_limit_.count() / 1000);
    return Allowed::kNone;
  }
  if (said == Said::kAny) return Allowed::kAny;
  if (phase_ == Phase::kMayThink) {
    words[static_cast<std::size_t>(opening_id_ / 32)] |= 1U << (opening_id_ % 32);
    return Allowed::kSome;
  }
  if (said == Said::kSome) return Allowed::kSome;
  is_over_ = matcher_.may_end();
  problem_ = fmt::format("{}: {}", field_, matcher_.problem());
  return Allowed::kNone;
}

}  // namespace slime::engine
