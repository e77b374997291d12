// Bytes as a grammar's source: a grammar or a ConfigError, whose masks allow what its matcher accepts.
//   build/fuzz/grammar_fuzz -max_len=4096

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/error.h"
#include "text/grammar/grammar_matcher.h"

namespace {

using namespace slime;
using namespace slime::text;

constexpr GrammarLimits kTight{.source_bytes = 4096,
                               .text_bytes = 2048,
                               .schema_depth = 12,
                               .num_schemas = 300,
                               .num_properties = 40,
                               .num_values = 100,
                               .repetition = 300,
                               .num_rules = 100};
constexpr int kMostSteps = 40;

const GrammarVocabulary& byte_vocabulary() {
  static const GrammarVocabulary vocabulary = GrammarVocabulary::of_bytes();
  return vocabulary;
}

bool has_bit(const std::vector<uint32_t>& words, TokenId id) {
  return (words[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1U) != 0;
}

/// Walks along allowed bytes, chosen by `state`; every id is asked for both ways at the first steps.
void walk(const std::shared_ptr<const CompiledGrammar>& grammar, uint32_t state) {
  GrammarMatcher matcher(grammar);
  for (int step = 0; step < kMostSteps && !matcher.is_finished(); ++step) {
    std::vector<uint32_t> words(static_cast<std::size_t>((grammar->width() + 31) / 32), 0);
    const auto allowed = matcher.allow(words);
    if (allowed == GrammarMatcher::Allowed::kNone) return;
    std::vector<TokenId> ids;
    for (TokenId id = 0; id < grammar->width(); ++id) {
      const bool is_allowed = allowed == GrammarMatcher::Allowed::kAny || has_bit(words, id);
      if (is_allowed) ids.push_back(id);
      if (step > 2) continue;
      const bool is_accepted = matcher.accept(id);
      if (is_accepted != is_allowed) std::abort();
      if (is_accepted) matcher.rollback(1);
    }
    state = state * 1664525 + 1013904223;
    if (!matcher.accept(ids[(state >> 8) % ids.size()])) std::abort();
  }
}

}  // namespace

/// The first byte chooses the kind, the second how much white space and where the walk goes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  constexpr GrammarKind kKinds[] = {GrammarKind::kJsonSchema, GrammarKind::kRegex,
                                    GrammarKind::kEbnf, GrammarKind::kStructuralTag};
  GrammarSpec spec{.kind = kKinds[data[0] % std::size(kKinds)], .max_whitespace = data[1] % 4};
  spec.source.assign(reinterpret_cast<const char*>(data) + 2, size - 2);
  try {
    walk(compile_grammar(spec, byte_vocabulary(), kTight), data[1]);
  } catch (const ConfigError&) {  // the expected answer to most inputs
  }
  return 0;
}
