// Bytes as what a rank that follows in an engine claims: whoever is let in has a place in the engine.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "roles/follower_greeting.h"

using namespace slime;

/// The first byte is the size of the engine.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  constexpr int64_t kEpoch = 3;
  if (size == 0) return 0;
  const std::string_view greeting(reinterpret_cast<const char*>(data) + 1, size - 1);
  const int ranks = data[0];
  const auto rank = roles::rank_of_follower(greeting, kEpoch, ranks);
  if (!rank) return 0;
  if (*rank < 1 || *rank >= ranks) std::abort();
  if (roles::to_follower_greeting(*rank, kEpoch) != greeting) std::abort();
  return 0;
}
