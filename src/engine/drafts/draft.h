#pragma once

/// Draft: a guess of one of a sequence's next tokens, which a step verifies (docs/decisions/0163-drafts.md).

#include "core/token_span.h"

namespace slime::engine {

struct Draft {
  TokenId id = 0;
  double chance = 0;  // that this one and all drafts before it are right
  friend bool operator==(const Draft&, const Draft&) = default;
};

}  // namespace slime::engine
