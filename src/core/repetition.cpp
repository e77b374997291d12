#include "core/repetition.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace slime {
namespace {

constexpr std::size_t kCharacters = 10'000;
constexpr std::size_t kWindow = std::size_t{1} << 15;
constexpr std::size_t kLeastMatch = 3, kMostMatch = 258;
constexpr int kMostChain = 1024;  // earlier places that are looked at
/// Deflate's own: zlib's frame, and the tables of the codes by their number of symbols.
constexpr double kFrameBytes = 6, kTableBits = 3.5;

/// What a symbol costs in bits by an ideal code, summed over all that occurred.
double code_bits(const std::vector<double>& counts) {
  double total = 0, bits = 0;
  for (const double count : counts) total += count;
  for (const double count : counts) {
    if (count == 0) continue;
    // No code is shorter than a bit.
    bits += count * std::max(1.0, std::log2(total / count)) + kTableBits;
  }
  return bits;
}

struct Match {
  std::size_t length = 0, distance = 0;
};

/// Places of the same three bytes, the newest first.
class Places {
 public:
  explicit Places(std::string_view text)
      : text_(text), heads_(kHeads, kNone), next_(text.size(), kNone) {}

  Match longest(std::size_t at) const {
    Match best;
    if (at + kLeastMatch > text_.size()) return best;
    const std::size_t most = std::min(kMostMatch, text_.size() - at);
    std::size_t place = heads_[key(at)];
    for (int looked = 0; place != kNone && at - place <= kWindow && looked < kMostChain; ++looked) {
      std::size_t length = 0;
      while (length < most && text_[place + length] == text_[at + length]) ++length;
      if (length > best.length) best = {length, at - place};
      if (length == most) break;
      place = next_[place];
    }
    return best.length >= kLeastMatch ? best : Match{};
  }
  void add(std::size_t at) {
    if (at + kLeastMatch > text_.size()) return;
    next_[at] = heads_[key(at)];
    heads_[key(at)] = at;
  }

 private:
  static constexpr std::size_t kHeads = std::size_t{1} << 16;
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t key(std::size_t at) const {
    uint32_t bytes = 0;
    std::memcpy(&bytes, text_.data() + at, kLeastMatch);
    return (bytes * 2654435761U) >> 16;
  }
  std::string_view text_;
  std::vector<std::size_t> heads_, next_;
};

}  // namespace

std::size_t compressed_size(std::string_view text) {
  // Literals and lengths share a code; distances have their own. Both have classes of powers of two
  // with extra bits, about as deflate's.
  std::vector<double> literals(256 + 64, 0.0), distances(64, 0.0);
  double extra_bits = 0;
  Places places(text);
  for (std::size_t at = 0; at < text.size();) {
    Match match = places.longest(at);
    places.add(at);
    // A longer match one byte later is worth a literal.
    if (match.length > 0 && places.longest(at + 1).length > match.length) match = {};
    if (match.length == 0) {
      ++literals[static_cast<unsigned char>(text[at++])];
      continue;
    }
    const auto length_bits = static_cast<std::size_t>(std::bit_width(match.length - kLeastMatch));
    const auto distance_bits = static_cast<std::size_t>(std::bit_width(match.distance));
    const std::size_t extra_length =
        length_bits > 3 && match.length < kMostMatch ? length_bits - 3 : 0;
    const std::size_t extra_distance = distance_bits > 2 ? distance_bits - 2 : 0;
    ++literals[256 + length_bits];
    ++distances[distance_bits];
    extra_bits += static_cast<double>(extra_length + extra_distance + 1);
    for (std::size_t i = 1; i < match.length; ++i) places.add(at + i);
    at += match.length;
  }
  const double bits = code_bits(literals) + code_bits(distances) + extra_bits;
  return static_cast<std::size_t>(kFrameBytes + bits / 8);
}

bool is_repetitive(std::string_view text) {
  if (text.size() <= kCharacters) return false;
  // The place where the last so many characters begin: continuation bytes of UTF-8 are of no character.
  std::size_t begin = text.size(), characters = 0;
  while (begin > 0 && characters < kCharacters) {
    --begin;
    characters += (static_cast<unsigned char>(text[begin]) & 0xC0U) != 0x80U ? 1 : 0;
  }
  if (characters < kCharacters || begin == 0) return false;
  const std::string_view end = text.substr(begin);
  return compressed_size(end) * 10 < end.size();
}

}  // namespace slime
