#include "roles/follower_greeting.h"

#include <fmt/format.h>

#include <charconv>

namespace slime::roles {

std::string to_follower_greeting(int rank, int64_t epoch) {
  return fmt::format("{} {}", rank, epoch);
}

std::optional<int> rank_of_follower(std::string_view greeting, int64_t epoch, int size) {
  int rank = 0;
  const char* const end = greeting.data() + greeting.size();
  const auto [rest, error] = std::from_chars(greeting.data(), end, rank);
  if (error != std::errc{} || rank < 1 || rank >= size) return std::nullopt;
  if (greeting != to_follower_greeting(rank, epoch)) return std::nullopt;
  return rank;
}

}  // namespace slime::roles
