#pragma once

/// Grammar compiled for a vocabulary: what matchers of requests share.

#include <cstddef>
#include <memory>

#include "text/grammar/grammar_limits.h"
#include "text/grammar/grammar_spec.h"
#include "text/grammar/grammar_vocabulary.h"

namespace slime::text {

/// Immutable for its users; masks are kept inside once they were computed. Any number of threads.
class CompiledGrammar final {
 public:
  struct Parts;
  explicit CompiledGrammar(std::unique_ptr<Parts> parts);
  ~CompiledGrammar();
  CompiledGrammar(const CompiledGrammar&) = delete;
  CompiledGrammar& operator=(const CompiledGrammar&) = delete;

  /// Of memory, about; grows as masks are kept.
  std::size_t size_bytes() const;

  /// Of its vocabulary: the width of masks.
  int64_t width() const;

  const Parts& parts() const { return *parts_; }

 private:
  std::unique_ptr<Parts> parts_;
};

/// Reads the source, refuses what cannot be bound exactly, and compiles on this thread; the first mask is
/// computed too. Throws ConfigError that names what is wrong and where in the source: a keyword and its
/// JSON pointer, a line and column. GrammarCompiler (grammar_compiler.h) does it beside, with a cache.
std::shared_ptr<const CompiledGrammar> compile_grammar(const GrammarSpec& spec,
                                                       const GrammarVocabulary& vocabulary,
                                                       const GrammarLimits& limits = {});

}  // namespace slime::text
