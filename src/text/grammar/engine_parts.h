#pragma once

/// Objects of the grammar engine that those of this folder hold. Included by their sources alone.

#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
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
  /// A character that no text holds, and that the engine's grammar has behind each text: where it may come
  /// stands for where the text may end. Nothing: the engine knows the end itself.
  std::optional<char> terminator = {};
  std::vector<TokenId> end_ids = {};
  /// GrammarVocabulary::Parts::blank_ids, and which of them may begin a text, as masks of `width` bits;
  /// empty where there are none.
  std::vector<uint32_t> blanks, first_blanks;
  int64_t width;

  bool is_banned(TokenId id) const;
  bool is_end(TokenId id) const { return std::ranges::find(end_ids, id) != end_ids.end(); }
  bool is_blank(TokenId id) const {
    const auto at = static_cast<std::size_t>(id);
    return !blanks.empty() && (blanks[at / 32] >> (at % 32) & 1U) != 0;
  }
};

}  // namespace slime::text
