#pragma once

/// Token spellings by id and ids by spelling. Ids may have holes.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/sample.h"

namespace slime::text {

/// The largest published vocabularies have 262,144 tokens.
inline constexpr TokenId kMaxTokenId = (1 << 22) - 1;

/// One string per id, end to end in one block.
class StringsById final {
 public:
  /// False when the id is outside 0 .. kMaxTokenId or taken.
  bool add(TokenId id, std::string_view text);

  bool contains(TokenId id) const {
    return id >= 0 && id < end_id() && places_[static_cast<std::size_t>(id)].begin != kAbsent;
  }
  /// Empty when there is no such id. Valid until the next add().
  std::string_view operator[](TokenId id) const {
    if (!contains(id)) return {};
    const Place& place = places_[static_cast<std::size_t>(id)];
    return std::string_view(text_).substr(place.begin, place.length);
  }
  /// One more than the largest id.
  TokenId end_id() const { return static_cast<TokenId>(places_.size()); }

 private:
  static constexpr uint32_t kAbsent = UINT32_MAX;
  struct Place {
    uint32_t begin = kAbsent;  // in text_
    uint32_t length = 0;
  };
  std::string text_;
  std::vector<Place> places_;
};

class Vocabulary final {
 public:
  /// Room for this many tokens without rehashing.
  explicit Vocabulary(std::size_t expected_tokens = 0);

  /// False when the id is outside 0 .. kMaxTokenId, or id or spelling is taken.
  bool add(TokenId id, std::string_view spelling);

  std::optional<TokenId> find(std::string_view spelling) const {
    const TokenId id = slots_[slot_of(spelling)];
    return id < 0 ? std::nullopt : std::optional(id);
  }
  bool contains(TokenId id) const { return spellings_.contains(id); }
  /// Empty when there is no such id. Valid until the next add().
  std::string_view operator[](TokenId id) const { return spellings_[id]; }
  /// One more than the largest id.
  TokenId end_id() const { return spellings_.end_id(); }
  std::size_t num_tokens() const { return num_tokens_; }

 private:
  /// Where `spelling` is in slots_, or the free slot where it belongs.
  std::size_t slot_of(std::string_view spelling) const;
  void rehash(std::size_t num_slots);

  StringsById spellings_;
  std::vector<TokenId> slots_;  // open addressing, a power of two at most half full; -1 is free
  std::size_t num_tokens_ = 0;
};

/// A 64-bit hash of a short string; not for adversaries' benefit, nor stable between builds.
uint64_t hash_bytes(std::string_view bytes);

}  // namespace slime::text
