#include "text/tokenizer/placed_token.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

namespace slime::text {
namespace {

constexpr std::size_t kReach = 3000;  // bytes that may differ, of both texts together
constexpr std::size_t kSure = 4;      // equal bytes after a difference, or the end of both

bool goes_on_alike(std::string_view made, std::string_view source) {
  if (made.size() < kSure || source.size() < kSure) return made == source;
  return made.substr(0, kSure) == source.substr(0, kSure);
}

/// How many bytes of each text differ before both go on alike; the fewest together.
std::optional<std::pair<std::size_t, std::size_t>> difference(std::string_view made,
                                                              std::string_view source) {
  for (std::size_t both = 1; both <= std::min(kReach, made.size() + source.size()); ++both) {
    const std::size_t most = std::min(both, made.size());
    for (std::size_t i = both > source.size() ? both - source.size() : 0; i <= most; ++i) {
      if (goes_on_alike(made.substr(i), source.substr(both - i))) return std::pair{i, both - i};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::vector<uint32_t>> lay_over(std::span<const std::string_view> pieces,
                                              std::string_view source) {
  std::string made;
  std::vector<std::size_t> ends = {0};
  for (const std::string_view piece : pieces) {
    made += piece;
    ends.push_back(made.size());
  }
  std::vector<uint32_t> places;
  places.reserve(ends.size());
  std::size_t at = 0, place = 0;  // where both are alike up to here
  while (places.size() < ends.size()) {
    while (at < made.size() && place < source.size() && made[at] == source[place]) {
      while (places.size() < ends.size() && ends[places.size()] == at)
        places.push_back(static_cast<uint32_t>(place));
      ++at;
      ++place;
    }
    std::size_t other = 0, own = 0;
    if (at < made.size() || place < source.size()) {
      const auto found = difference(std::string_view(made).substr(at), source.substr(place));
      if (!found) return std::nullopt;
      std::tie(other, own) = *found;
    }
    while (places.size() < ends.size() && ends[places.size()] <= at + other) {
      const std::size_t into = ends[places.size()] - at;
      const std::size_t share = other == 0 ? 0 : own * into / other;
      places.push_back(static_cast<uint32_t>(place + share));
    }
    at += other;
    place += own;
    if (at == made.size() && place == source.size()) break;
  }
  while (places.size() < ends.size()) places.push_back(static_cast<uint32_t>(source.size()));
  places.front() = 0;
  places.back() = static_cast<uint32_t>(source.size());
  return places;
}

}  // namespace slime::text
