#pragma once

/// The claim of a rank that follows in an engine over ranks that train, on its connection to the rank that
/// leads (roles/engine_group.h): "3 2", its rank in the engine and the run's epoch. It is believed of
/// who has proven the run's token (net/handshake.h).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace slime::roles {

inline constexpr const char* kFollowerRole = "follower";

std::string to_follower_greeting(int rank, int64_t epoch);

/// The rank, 1 to size - 1, where `greeting` is of this epoch; otherwise nothing.
std::optional<int> rank_of_follower(std::string_view greeting, int64_t epoch, int size);

}  // namespace slime::roles
