#include "cli/grammar_options.h"

#include <fmt/format.h>

#include <cstdio>

#include "engine/grammar_constraints.h"

namespace slime::cli {

void add_grammar_options(CLI::App& app, GrammarOptions& options) {
  app.add_option(
         "--grammar-backend", options.backend,
         "library of constrained decoding: xgrammar, whatever other one is named; none: requests "
         "with a grammar are refused")
      ->check(CLI::IsMember({"xgrammar", "none", "outlines", "llguidance"}))
      ->capture_default_str();
  app.add_flag("--constrained-json-disable-any-whitespace", options.disables_whitespace,
               "JSON under a grammar has no white space between its parts");
}

std::shared_ptr<engine::ConstraintSource> make_constraints(const GrammarOptions& options,
                                                           const text::Tokenizer* tokenizer,
                                                           int64_t vocab_size,
                                                           std::span<const TokenId> eos_ids,
                                                           const char* program) {
  const auto tell = [&](const char* flag, const char* why) {
    fmt::print(stderr, "{}: {} has no effect: {}\n", program, flag, why);
  };
  const bool takes_grammars = options.backend != "none";
  if (!takes_grammars || tokenizer == nullptr) {
    const char* why =
        tokenizer == nullptr ? "no tokenizer, so no grammars" : "--grammar-backend none";
    if (options.disables_whitespace) tell("--constrained-json-disable-any-whitespace", why);
  } else if (options.backend != "xgrammar") {
    tell(fmt::format("--grammar-backend {}", options.backend).c_str(), "this program has xgrammar");
  }
  return engine::make_grammar_constraints(
      tokenizer, vocab_size, eos_ids,
      {.takes_grammars = takes_grammars, .disables_whitespace = options.disables_whitespace});
}

}  // namespace slime::cli
