#include "text/tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <queue>

#include "core/splitmix64.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/word_cache.h"
#include "text/unicode/unicode.h"

namespace slime::text {
namespace {

constexpr std::size_t kShortWord = 64;  // symbols; up to here scanning beats the heap

uint64_t pair_key(TokenId left, TokenId right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

uint64_t next_serial() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

}  // namespace

Bpe::Bpe(const Vocabulary& vocabulary, const std::vector<Merge>& merges, BpeOptions options)
    : vocabulary_(vocabulary),
      options_(std::move(options)),
      byte_vocabulary_(options_.works_on_bytes ? vocabulary.num_tokens() : 0),
      serial_(next_serial()) {
  if (options_.works_on_bytes) {
    for (TokenId id = 0; id < vocabulary.end_id(); ++id) {
      if (!vocabulary.contains(id)) continue;
      if (const auto bytes = spelled_bytes(vocabulary[id])) byte_vocabulary_.add(id, *bytes);
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    const auto id = options_.works_on_bytes ? byte_vocabulary_.find({&text, 1})
                                            : vocabulary.find(fmt::format("<0x{:02X}>", byte));
    byte_tokens_[static_cast<std::size_t>(byte)] = id.value_or(-1);
  }
  const std::size_t num_slots = std::bit_ceil(std::max<std::size_t>(merges.size() * 2, 16));
  pair_shift_ = 64 - std::countr_zero(num_slots);
  pairs_.assign(num_slots, PairEntry{kFree, 0, 0});
  for (const Merge& merge : merges) {
    auto* entry = const_cast<PairEntry*>(find_pair(merge.left, merge.right));
    if (entry == nullptr) {
      std::size_t slot = pair_key(merge.left, merge.right) * kGoldenRatio64 >> pair_shift_;
      while (pairs_[slot].pair != kFree) slot = (slot + 1) & (num_slots - 1);
      entry = &pairs_[slot];
    }
    *entry = {pair_key(merge.left, merge.right), merge.rank, merge.result};
  }
}

const Bpe::PairEntry* Bpe::find_pair(TokenId left, TokenId right) const {
  const uint64_t key = pair_key(left, right);
  std::size_t slot = key * kGoldenRatio64 >> pair_shift_;
  while (pairs_[slot].pair != key) {
    if (pairs_[slot].pair == kFree) return nullptr;
    slot = (slot + 1) & (pairs_.size() - 1);
  }
  return &pairs_[slot];
}

void Bpe::encode(std::string_view word, std::vector<TokenId>& ids) const {
  if (word.size() > WordCache::kMaxWordBytes) {
    encode_uncached(word, ids);
    return;
  }
  WordCache& cache = WordCache::of_thread(serial_);
  const uint64_t hash = hash_bytes(word);
  if (const auto known = cache.find(word, hash); !known.empty()) {
    ids.insert(ids.end(), known.begin(), known.end());
    return;
  }
  const std::size_t before = ids.size();
  encode_uncached(word, ids);
  const auto fresh = std::span<const TokenId>(ids).subspan(before);
  if (!fresh.empty() && fresh.size() <= WordCache::kMaxTokens) cache.keep(word, hash, fresh);
}

void Bpe::encode_uncached(std::string_view word, std::vector<TokenId>& ids) const {
  if (options_.ignore_merges) {
    const auto whole =
        options_.works_on_bytes ? byte_vocabulary_.find(word) : vocabulary_.find(word);
    if (whole) {
      ids.push_back(*whole);
      return;
    }
  }
  std::vector<TokenId> symbols;
  symbols.reserve(word.size());
  split_to_symbols(word, symbols);
  if (symbols.size() <= kShortWord) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

void Bpe::split_to_symbols(std::string_view word, std::vector<TokenId>& symbols) const {
  if (!options_.works_on_bytes) {
    split_to_characters(word, symbols);
    return;
  }
  bool after_unknown = false;
  for (const char byte : word) {
    const TokenId id = byte_tokens_[static_cast<unsigned char>(byte)];
    if (id >= 0) {
      symbols.push_back(id);
    } else if (options_.unk_id >= 0 && !(options_.fuse_unk && after_unknown)) {
      symbols.push_back(options_.unk_id);
    }
    after_unknown = id < 0;
  }
}

void Bpe::split_to_characters(std::string_view word, std::vector<TokenId>& symbols) const {
  // An unknown token is written when the next known character or the end comes, as the reference
  // does: byte tokens in between go before it.
  bool has_pending_unknown = false;
  const auto write_pending = [&] {
    if (has_pending_unknown) symbols.push_back(options_.unk_id);
    has_pending_unknown = false;
  };
  std::string decorated;
  for (std::size_t i = 0; i < word.size();) {
    const uint32_t length = decode_char(word.data() + i).length;
    std::string_view character = word.substr(i, length);
    const bool has_prefix = i > 0 && !options_.continuing_subword_prefix.empty();
    const bool has_suffix = i + length == word.size() && !options_.end_of_word_suffix.empty();
    if (has_prefix || has_suffix) {
      decorated.clear();
      if (has_prefix) decorated += options_.continuing_subword_prefix;
      decorated += character;
      if (has_suffix) decorated += options_.end_of_word_suffix;
      character = decorated;
    }
    i += length;
    if (const auto id = vocabulary_.find(character)) {
      write_pending();
      symbols.push_back(*id);
    } else if (options_.byte_fallback && append_byte_tokens(character, symbols)) {
      continue;
    } else if (options_.unk_id >= 0) {
      if (!options_.fuse_unk) write_pending();
      has_pending_unknown = true;
    }
  }
  write_pending();
}

bool Bpe::append_byte_tokens(std::string_view text, std::vector<TokenId>& symbols) const {
  const auto token = [this](char byte) { return byte_tokens_[static_cast<unsigned char>(byte)]; };
  if (std::any_of(text.begin(), text.end(), [&](char byte) { return token(byte) < 0; }))
    return false;
  for (const char byte : text) symbols.push_back(token(byte));
  return true;
}

void Bpe::merge_short(std::vector<TokenId>& symbols) const {
  constexpr uint32_t kNone = UINT32_MAX;
  std::array<uint32_t, kShortWord> ranks;  // of the pair that begins at each symbol
  std::array<TokenId, kShortWord> results;
  std::size_t size = symbols.size();
  const auto look_up = [&](std::size_t i) {
    const PairEntry* pair = i + 1 < size ? find_pair(symbols[i], symbols[i + 1]) : nullptr;
    ranks[i] = pair == nullptr ? kNone : pair->rank;
    if (pair != nullptr) results[i] = pair->result;
  };
  for (std::size_t i = 0; i < size; ++i) look_up(i);
  while (size > 1) {
    const std::size_t best = static_cast<std::size_t>(
        std::min_element(ranks.begin(), ranks.begin() + size) - ranks.begin());
    if (ranks[best] == kNone) break;
    symbols[best] = results[best];
    const auto close_gap = [&](auto& list) {
      std::copy(list.begin() + best + 2, list.begin() + size, list.begin() + best + 1);
    };
    close_gap(symbols);
    close_gap(ranks);
    close_gap(results);
    --size;
    look_up(best);
    if (best > 0) look_up(best - 1);
  }
  symbols.resize(size);
}

void Bpe::merge_long(std::vector<TokenId>& symbols) const {
  constexpr uint32_t kEnd = UINT32_MAX;
  const auto size = static_cast<uint32_t>(symbols.size());
  struct Links {
    uint32_t previous, next;
  };
  std::vector<Links> links(size);
  for (uint32_t i = 0; i < size; ++i)
    links[i] = {i == 0 ? kEnd : i - 1, i + 1 == size ? kEnd : i + 1};

  struct Candidate {
    uint32_t rank, at;
    TokenId left, right, result;  // stale once the symbols at `at` are others
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  std::vector<Candidate> heap;
  heap.reserve(size);
  const auto candidate_at = [&](uint32_t i) -> std::optional<Candidate> {
    const uint32_t next = links[i].next;
    if (next == kEnd) return std::nullopt;
    const PairEntry* pair = find_pair(symbols[i], symbols[next]);
    if (pair == nullptr) return std::nullopt;
    return Candidate{pair->rank, i, symbols[i], symbols[next], pair->result};
  };
  for (uint32_t i = 0; i < size; ++i) {
    if (const auto candidate = candidate_at(i)) heap.push_back(*candidate);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push = [&](uint32_t i) {
    if (const auto candidate = candidate_at(i)) {
      heap.push_back(*candidate);
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  };
  constexpr TokenId kGone = -1;
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const Candidate best = heap.back();
    heap.pop_back();
    const uint32_t right = links[best.at].next;
    if (symbols[best.at] != best.left || right == kEnd || symbols[right] != best.right) continue;
    symbols[best.at] = best.result;
    symbols[right] = kGone;
    links[best.at].next = links[right].next;
    if (links[right].next != kEnd) links[links[right].next].previous = best.at;
    push(best.at);
    if (links[best.at].previous != kEnd) push(links[best.at].previous);
  }
  std::erase(symbols, kGone);
}

}  // namespace slime::text
