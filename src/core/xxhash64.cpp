#include "core/xxhash64.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

namespace slime {
namespace {

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63;
constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5;
constexpr std::size_t kStripe = 32;  // bytes: one word for each of four lanes

template <typename Word>
uint64_t next_word(std::string_view& bytes) {
  Word word = 0;
  std::memcpy(&word, bytes.data(), sizeof word);
  bytes.remove_prefix(sizeof word);
  return word;
}

uint64_t mixed(uint64_t lane, uint64_t word) {
  return std::rotl(lane + word * kPrime2, 31) * kPrime1;
}

uint64_t merged(uint64_t hash, uint64_t lane) {
  return (hash ^ mixed(0, lane)) * kPrime1 + kPrime4;
}

uint64_t hash_of_stripes(std::string_view& bytes, uint64_t seed) {
  std::array<uint64_t, 4> lanes{seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1};
  while (bytes.size() >= kStripe)
    for (uint64_t& lane : lanes) lane = mixed(lane, next_word<uint64_t>(bytes));
  uint64_t hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) +
                  std::rotl(lanes[3], 18);
  for (const uint64_t lane : lanes) hash = merged(hash, lane);
  return hash;
}

}  // namespace

uint64_t xxhash64(std::string_view bytes, uint64_t seed) {
  const uint64_t size = bytes.size();
  uint64_t hash = size >= kStripe ? hash_of_stripes(bytes, seed) : seed + kPrime5;
  hash += size;
  while (bytes.size() >= 8)
    hash = std::rotl(hash ^ mixed(0, next_word<uint64_t>(bytes)), 27) * kPrime1 + kPrime4;
  if (bytes.size() >= 4)
    hash = std::rotl(hash ^ next_word<uint32_t>(bytes) * kPrime1, 23) * kPrime2 + kPrime3;
  while (!bytes.empty()) hash = std::rotl(hash ^ next_word<uint8_t>(bytes) * kPrime5, 11) * kPrime1;
  hash = (hash ^ hash >> 33) * kPrime2;
  hash = (hash ^ hash >> 29) * kPrime3;
  return hash ^ hash >> 32;
}

}  // namespace slime
