#include "text/tokenizer/vocabulary.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/splitmix64.h"

namespace slime::text {

uint64_t hash_bytes(std::string_view bytes) {
  uint64_t hash = bytes.size() * kGoldenRatio64;
  const auto mix = [&](uint64_t word) {
    hash = (hash ^ word) * kGoldenRatio64;
    hash ^= hash >> 29;
  };
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    mix(word);
  }
  uint64_t rest = 0;
  std::memcpy(&rest, bytes.data() + i, bytes.size() - i);
  mix(rest);
  hash *= kGoldenRatio64;
  return hash ^ hash >> 32;
}

bool StringsById::add(TokenId id, std::string_view text) {
  if (id < 0 || id > kMaxTokenId || contains(id) || text_.size() + text.size() >= kAbsent)
    return false;
  if (end_id() <= id) places_.resize(static_cast<std::size_t>(id) + 1);
  places_[static_cast<std::size_t>(id)] = {static_cast<uint32_t>(text_.size()),
                                           static_cast<uint32_t>(text.size())};
  text_ += text;
  return true;
}

Vocabulary::Vocabulary(std::size_t expected_tokens) {
  rehash(std::bit_ceil(std::max<std::size_t>(expected_tokens * 2, 64)));
}

bool Vocabulary::add(TokenId id, std::string_view spelling) {
  const std::size_t slot = slot_of(spelling);
  if (slots_[slot] >= 0 || !spellings_.add(id, spelling)) return false;
  slots_[slot] = id;
  if (++num_tokens_ * 2 > slots_.size()) rehash(slots_.size() * 2);
  return true;
}

std::size_t Vocabulary::slot_of(std::string_view spelling) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash_bytes(spelling) & mask;
  while (slots_[slot] >= 0 && (*this)[slots_[slot]] != spelling) slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::rehash(std::size_t num_slots) {
  slots_.assign(num_slots, -1);
  for (TokenId id = 0; id < end_id(); ++id) {
    if (contains(id)) slots_[slot_of((*this)[id])] = id;
  }
}

}  // namespace slime::text
