#pragma once

/// Compiler of grammars beside the threads that need them, with a cache and budgets.
///
///   GrammarCompiler compiler(std::make_shared<GrammarVocabulary>(tokenizer, width, end_ids), {});
///   compiler.compile(spec, [](GrammarResult grammar) {
///     if (!grammar) answer(400, grammar.error().message);
///     else start(GrammarMatcher(*grammar));
///   });
///
/// A compilation cannot be interrupted. One that takes longer than the time limit fails for those who wait,
/// goes on, and is kept when it ends; the number of threads bounds how many do so.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/expected.h"
#include "text/grammar/compiled_grammar.h"

namespace slime::text {

enum class GrammarFailure : uint8_t {
  kRefused,   // the source: 400
  kTooSlow,   // it takes longer than the time limit: 400
  kBusy,      // too many are waiting; later it may work: 429, 503
  kShutDown,  // the compiler has ended
};

struct GrammarError {
  GrammarFailure kind = GrammarFailure::kRefused;
  std::string message = {};  // what is wrong, where, what would work
};

using GrammarResult = Expected<std::shared_ptr<const CompiledGrammar>, GrammarError>;

struct GrammarCompilerConfig {
  GrammarLimits limits = {};
  int num_threads = 2;
  int num_waiting = 256;                        // compilations that no thread has begun
  std::chrono::milliseconds time_limit{10000};  // from compile() on
  std::size_t cache_bytes = std::size_t{256} << 20;
};

struct GrammarCompilerCounts {
  int64_t compiled = 0, refused = 0, too_slow = 0, busy = 0, cache_hits = 0;
  int64_t waiting = 0, running = 0;  // now
  int64_t cached = 0;                // grammars
  std::size_t cache_bytes = 0;
};

/// Any thread.
class GrammarCompiler final {
 public:
  GrammarCompiler(std::shared_ptr<const GrammarVocabulary> vocabulary,
                  GrammarCompilerConfig config);
  /// Answers those who wait with kShutDown, and waits for what is being compiled.
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  using Done = std::function<void(GrammarResult)>;
  /// Calls `done` once: before it returns when the grammar, or its refusal, is in the cache, otherwise on a
  /// thread of the compiler. No lock is held then; `done` does little and does not throw. Requests for the
  /// same grammar wait for one compilation.
  void compile(const GrammarSpec& spec, Done done);

  /// Waits for it.
  GrammarResult compile(const GrammarSpec& spec);

  /// Forgets what no request uses.
  void clear_cache();

  GrammarCompilerCounts counts() const;
  const GrammarVocabulary& vocabulary() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace slime::text
