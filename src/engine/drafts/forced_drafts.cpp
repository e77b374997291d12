#include "engine/drafts/forced_drafts.h"

#include <algorithm>

#include "core/random.h"
#include "core/splitmix64.h"

namespace slime::engine {
namespace {

/// Apart from the numbers that draw the request's tokens.
constexpr uint64_t kForcedSeed = 0x64726166745F6F6BULL;
constexpr uint64_t kApart = uint64_t{1} << 32;  // more tokens than a request has
/// Chances of drafts that are never right; the planner divides by them.
constexpr double kLeastForetold = 0.01;

}  // namespace

void propose_forced(const Request& request, int64_t count, double acceptance,
                    std::vector<Draft>& out) {
  out.clear();
  double chance = 1;
  for (int64_t i = 0; i < count; ++i) {
    chance *= std::max(acceptance, kLeastForetold);
    // Of different places: routers send them to as many experts as other tokens.
    const uint64_t place = splitmix64(request.tokens.size() + static_cast<uint64_t>(i) * kApart);
    out.push_back({.id = request.tokens[place % request.tokens.size()], .chance = chance});
  }
}

bool is_forced_right(const Request& request, int64_t position, double acceptance) {
  return uniform(request.seed ^ kForcedSeed, request.stream, static_cast<uint64_t>(position)) <
         acceptance;
}

}  // namespace slime::engine
