#include "loop/follower_greeting.h"

#include <fmt/format.h>

#include <charconv>

namespace slime::loop {

std::string to_follower_greeting(int rank, const cluster::RunIdentity& identity) {
  return fmt::format("{} {}", rank, cluster::to_greeting(identity));
}

std::optional<int> rank_of_follower(std::string_view greeting, const cluster::RunIdentity& own,
                                    int size) {
  int rank = 0;
  const char* const end = greeting.data() + greeting.size();
  const auto [rest, error] = std::from_chars(greeting.data(), end, rank);
  if (error != std::errc{} || rank < 1 || rank >= size || rest == end || *rest != ' ')
    return std::nullopt;
  const std::string_view of_run =
      greeting.substr(static_cast<std::size_t>(rest + 1 - greeting.data()));
  if (!cluster::why_refused(own, of_run).empty()) return std::nullopt;
  return rank;
}

}  // namespace slime::loop
