#pragma once

/// Constraints of requests: json_schema, regex, ebnf and structural_tag, compiled concurrently with the
/// engine, with thoughts in front of them left free; and lists of tokens.

#include <memory>
#include <span>

#include "engine/token_constraint.h"
#include "text/grammar/grammar_compiler.h"

namespace slime::text {
class Tokenizer;
}

namespace slime::engine {

struct GrammarConfig {
  text::GrammarCompilerConfig compiler = {};
  /// False: requests with a grammar are refused.
  bool takes_grammars = true;
  /// JSON is written without white space between its parts.
  bool disables_whitespace = false;
  /// Of all masks of a request; one whose grammar takes more ends.
  std::chrono::milliseconds mask_limit{5000};
};

/// `vocab_size`: width of the logits. `eos_ids` end a response. The tokenizer outlives the object; without
/// one, lists of ids are all that is taken. The vocabulary is prepared when the first grammar comes.
std::shared_ptr<ConstraintSource> make_grammar_constraints(const text::Tokenizer* tokenizer,
                                                           int64_t vocab_size,
                                                           std::span<const TokenId> eos_ids,
                                                           const GrammarConfig& config = {});

}  // namespace slime::engine
