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
  /// Tokens that begin with a blank which is no part of a text that begins with them; others than the
  /// special ones. Empty: of this vocabulary none is left out.
  std::vector<TokenId> blank_ids;
  int64_t width;
};

struct CompiledGrammar::Parts {
  xgrammar::CompiledGrammar grammar;
  /// Tokens that its masks leave out: ascending words of a mask, and their bits.
  std::vector<std::pair<std::size_t, uint32_t>> banned;
  /// GrammarVocabulary::Parts::blank_ids, and which of them may begin a text, as masks of `width` bits;
  /// empty where there are none.
  std::vector<uint32_t> blanks, first_blanks;
  int64_t width;

  bool is_banned(TokenId id) const;
  bool is_blank(TokenId id) const {
    const auto at = static_cast<std::size_t>(id);
    return !blanks.empty() && (blanks[at / 32] >> (at % 32) & 1U) != 0;
  }
};

}  // namespace slime::text
