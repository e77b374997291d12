#pragma once

/// Constraint on a response's next token, given those before: the place of a grammar in the engine.
///
/// The mask of a step depends on the token of the step before, so a request with a constraint is left out
/// of steps that are launched while its last token is not known (scheduler.h). It says itself where a
/// response may end: minimum lengths do not count for it.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/expected.h"
#include "engine/client.h"

namespace slime::engine {

class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  /// The response goes on with this token, which was allowed.
  virtual void accept(TokenId token) = 0;

  enum class Allowed {
    kAny,
    kSome,  // those of the words
    kNone,  // the response cannot go on: problem()
  };
  /// Sets bit id % 32 of words[id / 32] for each allowed id, of words that are zeros.
  virtual Allowed allow(std::span<uint32_t> words) = 0;

  /// allow() takes microseconds. One that may take longer is asked on another thread (mask_threads.h), one
  /// call at a time.
  virtual bool is_quick() const { return true; }

  /// Why no token is allowed.
  virtual std::string problem() const { return "no token is allowed here"; }

  /// The response is whole: nothing may follow. Asked after accept(), and where no token is allowed.
  virtual bool is_over() const { return false; }
};

/// Makes the constraints of requests, away from the engine's thread: compiling a grammar takes time.
class ConstraintSource {
 public:
  virtual ~ConstraintSource() = default;

  virtual bool constrains(const GenerateRequest& request) const = 0;

  /// Or why there is none: how the request ends.
  using MadeConstraint = Expected<std::unique_ptr<TokenConstraint>, FinishReason>;
  using Made = std::function<void(MadeConstraint)>;
  /// Of a request that it constrains. Calls `made` once: before it returns or later, on any thread, also
  /// after the caller is gone.
  virtual void make(const GenerateRequest& request, Made made) = 0;

  /// What it keeps for later requests alone.
  virtual void clear_cache() {}

  virtual GrammarLoad load() const { return {}; }
};

/// Of a mask of all ids.
constexpr int64_t mask_words(int64_t vocab_size) { return (vocab_size + 31) / 32; }

inline bool is_allowed(std::span<const uint32_t> words, int64_t id) {
  return (words[static_cast<std::size_t>(id / 32)] >> (id % 32) & 1U) != 0;
}

}  // namespace slime::engine
