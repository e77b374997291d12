// Bytes as what a rank that follows in an engine says first: whoever is let in has the run's token and a
// place in the engine.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "loop/follower_greeting.h"

using namespace slime;

/// The first byte is the size of the engine.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  static const cluster::RunIdentity run{.token = std::string(64, '7'), .epoch = 3};
  if (size == 0) return 0;
  const std::string_view greeting(reinterpret_cast<const char*>(data) + 1, size - 1);
  const int ranks = data[0];
  const auto rank = loop::rank_of_follower(greeting, run, ranks);
  if (!rank) return 0;
  if (*rank < 1 || *rank >= ranks || !greeting.ends_with(run.token)) std::abort();
  const std::string own = loop::to_follower_greeting(*rank, run);
  if (loop::rank_of_follower(own, run, ranks) != rank) std::abort();
  return 0;
}
