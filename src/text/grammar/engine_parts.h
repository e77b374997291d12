#pragma once

/// Objects of the grammar engine that those of this folder hold. Included by their sources alone.

#include <xgrammar/xgrammar.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "text/grammar/compiled_grammar.h"
#include "text/grammar/grammar_vocabulary.h"

namespace slime::text {

struct GrammarVocabulary::Parts {
  xgrammar::TokenizerInfo info;
  std::vector<TokenId> special_ids;  // ascending, without those that end a text
  std::vector<TokenId> end_ids;
  int64_t width;
};

struct CompiledGrammar::Parts {
  xgrammar::CompiledGrammar grammar;
  /// Tokens that its masks leave out: ascending words of a mask, and their bits.
  std::vector<std::pair<std::size_t, uint32_t>> banned;
  int64_t width;

  bool is_banned(TokenId id) const;
};

}  // namespace slime::text
