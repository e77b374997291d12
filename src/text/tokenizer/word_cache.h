#pragma once

/// A thread's memory of how short words were encoded: direct-mapped, a cache line per word, 2 MB.

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/sample.h"

namespace slime::text {

class WordCache final {
 public:
  static constexpr std::size_t kMaxWordBytes = 22;
  static constexpr std::size_t kMaxTokens = 8;

  /// Of the calling thread. Entries of another model (`serial`) are forgotten, so two models that
  /// take turns on one thread work, only slower.
  static WordCache& of_thread(uint64_t serial) {
    thread_local WordCache cache;
    if (cache.serial_ != serial) {
      cache.entries_.assign(kNumEntries, Entry{});
      cache.serial_ = serial;
    }
    return cache;
  }

  /// Empty when the word is not there; a word has at least one token to be kept.
  std::span<const TokenId> find(std::string_view word, uint64_t hash) const {
    const Entry& entry = entries_[hash % kNumEntries];
    const bool same = entry.hash == hash && entry.num_bytes == word.size() &&
                      std::memcmp(entry.bytes, word.data(), word.size()) == 0;
    return {entry.tokens, same ? entry.num_tokens : std::size_t{0}};
  }

  /// `word` and `tokens` are within the limits above.
  void keep(std::string_view word, uint64_t hash, std::span<const TokenId> tokens) {
    Entry& entry = entries_[hash % kNumEntries];
    entry.hash = hash;
    entry.num_bytes = static_cast<uint8_t>(word.size());
    entry.num_tokens = static_cast<uint8_t>(tokens.size());
    std::memcpy(entry.bytes, word.data(), word.size());
    std::memcpy(entry.tokens, tokens.data(), tokens.size_bytes());
  }

 private:
  static constexpr std::size_t kNumEntries = 1 << 15;
  struct alignas(64) Entry {
    uint64_t hash = 0;
    uint8_t num_bytes = 0;
    uint8_t num_tokens = 0;
    char bytes[kMaxWordBytes];
    TokenId tokens[kMaxTokens];
  };
  static_assert(sizeof(Entry) == 64);

  std::vector<Entry> entries_;
  uint64_t serial_ = 0;  // 0 is no model
};

}  // namespace slime::text
