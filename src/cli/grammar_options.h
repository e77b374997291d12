#pragma once

/// Flags of constrained decoding, by SGLang's names.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/token_constraint.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::cli {

struct GrammarOptions {
  std::string backend = "xgrammar";
  bool disables_whitespace = false;
};

void add_grammar_options(CLI::App& app, GrammarOptions& options);

/// Without a tokenizer, which outlives the result, or with --grammar-backend none, grammars are refused.
/// `program`: of what is printed about flags that change nothing.
std::shared_ptr<engine::ConstraintSource> make_constraints(const GrammarOptions& options,
                                                           const text::Tokenizer* tokenizer,
                                                           int64_t vocab_size,
                                                           std::span<const TokenId> eos_ids,
                                                           const char* program);

}  // namespace slime::cli
