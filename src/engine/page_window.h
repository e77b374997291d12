#pragma once

/// Which tokens of a request no layer looks at any more, where every layer with keys has a sliding
/// window: their pages go back to the pool while the request runs.
///
/// Kernels read keys in blocks that begin at multiples of `block_tokens`, so a block goes as a whole.

#include <algorithm>
#include <cstdint>

namespace slime::engine {

struct PageWindow {
  int64_t tokens = 0;         // of the widest window; 0: some layer sees all tokens
  int64_t block_tokens = 64;  // a multiple of a page's

  explicit operator bool() const { return tokens > 0; }

  /// The first token whose keys and values the token at `position` and all later ones may need; one
  /// more is kept, since a request may turn out to have ended a token earlier.
  int64_t first_kept(int64_t position) const {
    if (tokens == 0) return 0;
    return std::max<int64_t>(0, position - tokens) / block_tokens * block_tokens;
  }

  /// At most so many tokens hold pages in a request of `length` tokens that is computed `chunk`
  /// tokens at a time.
  int64_t most_held(int64_t length, int64_t chunk) const {
    return tokens == 0 ? length : std::min(length, tokens + 2 * block_tokens + chunk);
  }
};

}  // namespace slime::engine
