#pragma once

/// What a rank that follows in an engine over ranks that train says first on its connection to the rank
/// that leads (loop/engine_group.h): "3 2 <token>", its rank in the engine and the run's greeting.
/// Whoever reaches the port may say something else.

#include <optional>
#include <string>
#include <string_view>

#include "cluster/run_identity.h"

namespace slime::loop {

std::string to_follower_greeting(int rank, const cluster::RunIdentity& identity);

/// The rank, 1 to size - 1, where `greeting` is of `own` run; otherwise nothing.
std::optional<int> rank_of_follower(std::string_view greeting, const cluster::RunIdentity& own,
                                    int size);

}  // namespace slime::loop
