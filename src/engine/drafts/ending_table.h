#pragma once

/// Hash table from the last 1, 2 or 4 tokens of a place in a text to the latest such place (suffix_index.h).
///
/// Open addressing with linear probing. A slot is 4 bytes: a place, whose own tokens are the key, and 6 bits of
/// the key's hash, which spare most looks at the tokens of another key. Growth is spread over the insertions that
/// follow it, so that none of them waits for a copy of the whole table.

#include <cstdint>
#include <vector>

#include "core/splitmix64.h"
#include "core/token_span.h"

namespace slime::engine {

/// Of a token in a suffix index; 0: none.
using TextPlace = uint32_t;
inline constexpr int kPlaceBits = 26;

/// The last tokens of a context, at most four: the last two are `late`.
struct Ending {
  uint64_t late = 0;
  uint64_t early = 0;
  friend bool operator==(const Ending&, const Ending&) = default;
  uint64_t hash() const { return splitmix64(late ^ (early * kGoldenRatio64)); }
};

class EndingTable {
 public:
  EndingTable() : slots_(64) {}

  /// The latest place with this ending, 0 if there is none. `ending_of(place)` gives a place's ending.
  template <typename EndingOf>
  TextPlace find(const Ending& ending, const EndingOf& ending_of) const {
    const uint64_t hash = ending.hash();
    const uint32_t here = slots_[slot(slots_, hash, ending, ending_of)];
    if (here != 0 || old_.empty()) return place_of(here);
    return place_of(old_[slot(old_, hash, ending, ending_of)]);
  }

  /// Makes `place`, below 2^kPlaceBits, the latest one with this ending. Returns the one before it, or 0.
  template <typename EndingOf>
  TextPlace exchange(const Ending& ending, TextPlace place, const EndingOf& ending_of) {
    move_some(ending_of);
    const uint64_t hash = ending.hash();
    uint32_t& here = slots_[slot(slots_, hash, ending, ending_of)];
    TextPlace earlier = place_of(here);
    if (earlier == 0 && !old_.empty())
      earlier = place_of(old_[slot(old_, hash, ending, ending_of)]);
    here = filled(place, hash);
    if (earlier == 0) ++num_endings_;
    if (num_endings_ * 10 > static_cast<int64_t>(slots_.size()) * 7) grow();
    return earlier;
  }

  int64_t num_bytes() const {
    return static_cast<int64_t>((slots_.size() + old_.size()) * sizeof(uint32_t));
  }

 private:
  static TextPlace place_of(uint32_t slot) { return slot & ((1U << kPlaceBits) - 1); }
  static uint32_t filled(TextPlace place, uint64_t hash) {
    return place | (static_cast<uint32_t>(hash >> 58) << kPlaceBits);
  }

  /// Index of the slot that has this ending, or of the empty one where it would be.
  template <typename EndingOf>
  static std::size_t slot(const std::vector<uint32_t>& slots, uint64_t hash, const Ending& ending,
                          const EndingOf& ending_of) {
    const std::size_t mask = slots.size() - 1;
    const uint32_t tag = filled(0, hash);
    std::size_t at = hash & mask;
    while (slots[at] != 0 &&
           ((slots[at] ^ tag) >> kPlaceBits != 0 || !(ending_of(place_of(slots[at])) == ending)))
      at = (at + 1) & mask;
    return at;
  }

  /// Two slots a call: 0.7 times as many calls as old slots precede the next growth.
  template <typename EndingOf>
  void move_some(const EndingOf& ending_of) {
    for (int i = 0; i < 2 && !old_.empty(); ++i) {
      if (const TextPlace place = place_of(old_[moved_]); place != 0) {
        const Ending ending = ending_of(place);
        const uint64_t hash = ending.hash();
        uint32_t& here = slots_[slot(slots_, hash, ending, ending_of)];
        if (here == 0) here = filled(place, hash);  // otherwise there is a later one
      }
      if (++moved_ == old_.size()) old_ = {};
    }
  }

  void grow();

  std::vector<uint32_t> slots_;  // as many as a power of two
  std::vector<uint32_t> old_;    // those before the last growth, until all are moved
  std::size_t moved_ = 0;        // of old_
  int64_t num_endings_ = 0;
};

}  // namespace slime::engine
