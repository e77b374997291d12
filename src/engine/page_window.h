#pragma once

/// Sliding-window KV cache: frees the pages of tokens that have left every layer's window, while
/// their request runs.
///
/// Where every layer with keys has a window, a page holds a token's keys of all layers. Where some see
/// all tokens, layers are in groups (engine/cache_groups.h), each with a page table of its own: one group
/// of those that see all, and groups of as many layers with a window.
///
/// Kernels read keys in blocks that begin at multiples of `block_tokens`, so a block goes as a whole.

#include <algorithm>
#include <cstdint>

namespace slime::engine {

struct PageWindow {
  int64_t tokens = 0;         // of the widest window; 0: no page goes back
  int64_t block_tokens = 64;  // a multiple of a page's
  /// Groups of layers with a window, beside one of layers without; 0: every layer has one.
  int64_t num_groups = 0;

  explicit operator bool() const { return tokens > 0; }

  /// The first token whose keys and values the token at `position` and all later ones may need in layers
  /// with a window; one more is kept, since a request may turn out to have ended a token earlier.
  int64_t first_kept(int64_t position) const {
    if (tokens == 0) return 0;
    return std::max<int64_t>(0, position - tokens) / block_tokens * block_tokens;
  }

  /// The first token whose keys and values the token at `position` looks at, which a request needs that
  /// goes on there.
  int64_t first_needed(int64_t position) const {
    if (tokens == 0) return 0;
    return std::max<int64_t>(0, position - std::max<int64_t>(1, tokens - 1)) / block_tokens *
           block_tokens;
  }

  /// At most so many tokens hold pages of layers with a window in a request of `length` tokens that is
  /// computed `chunk` tokens at a time.
  int64_t most_held(int64_t length, int64_t chunk) const {
    return tokens == 0 ? length : std::min(length, tokens + 2 * block_tokens + chunk);
  }

  // A request's page tables.
  int64_t num_tables() const { return 1 + num_groups; }
  /// Of layers that see all tokens: one or none.
  int64_t num_full_tables() const { return tokens == 0 || num_groups > 0 ? 1 : 0; }
  int64_t num_window_tables() const { return num_tables() - num_full_tables(); }

  /// At most so many pages are in all tables of such a request.
  int64_t most_pages(int64_t length, int64_t chunk, int64_t page_tokens) const {
    const auto pages = [&](int64_t count) { return (count + page_tokens - 1) / page_tokens; };
    return num_full_tables() * pages(length) +
           num_window_tables() * pages(most_held(length, chunk));
  }
};

}  // namespace slime::engine
