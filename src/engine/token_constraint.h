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

#include "engine/client.h"

namespace slime::engine {

class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  /// The response goes on with this token, which was allowed.
  virtual void accept(TokenId token) = 0;

  /// Sets bit id % 32 of words[id / 32] for each allowed id, of words that are zeros. At least one is.
  virtual void allow(std::span<uint32_t> words) const = 0;
};

/// That of a request; null: it may go on with anything.
using MakeTokenConstraint = std::function<std::unique_ptr<TokenConstraint>(const GenerateRequest&)>;

/// Of a mask of all ids.
constexpr int64_t mask_words(int64_t vocab_size) { return (vocab_size + 31) / 32; }

inline bool is_allowed(std::span<const uint32_t> words, int64_t id) {
  return (words[static_cast<std::size_t>(id / 32)] >> (id % 32) & 1U) != 0;
}

}  // namespace slime::engine
