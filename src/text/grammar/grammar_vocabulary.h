#pragma once

/// Vocabulary of a model as grammars see it: the bytes of each token, and the tokens that end a text.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/sample.h"

namespace slime::text {

class Tokenizer;

/// Immutable; takes a few hundred milliseconds to make for 150,000 tokens. May be used by any number of
/// threads.
class GrammarVocabulary final {
 public:
  /// `width`: of the logits; ids beyond the tokenizer's are never allowed. `end_ids` are allowed where a
  /// text may end, and only there. The tokenizer is not kept.
  GrammarVocabulary(const Tokenizer& tokenizer, int64_t width, std::span<const TokenId> end_ids);
  /// The same from bytes; tokens with none are never allowed. `special_ids`: allowed only by grammars
  /// whose source spells them.
  GrammarVocabulary(std::vector<std::string> token_bytes, std::span<const TokenId> end_ids,
                    std::vector<TokenId> special_ids = {});
  /// A token for each byte, and one behind them that ends the text: the vocabulary of tests and tools
  /// that have no tokenizer.
  static GrammarVocabulary of_bytes();

  ~GrammarVocabulary();
  GrammarVocabulary(GrammarVocabulary&&) noexcept;
  GrammarVocabulary& operator=(GrammarVocabulary&&) noexcept;

  int64_t width() const;

  struct Parts;
  const Parts& parts() const { return *parts_; }

 private:
  std::shared_ptr<const Parts> parts_;
};

}  // namespace slime::text
