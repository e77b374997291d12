#pragma once

/// An engine in a process that outlives its trainers: it listens at a local socket, serves one trainer
/// after the other, and keeps its weights between them.

#include <chrono>
#include <filesystem>

#include "cluster/run_identity.h"

namespace slime::roles {

/// Until it is told to end, or no trainer has come for `patience`. `identity`: of the engine's own ranks.
/// Returns the exit code.
int run_kept_engine(const std::filesystem::path& socket, std::chrono::milliseconds patience,
                    const cluster::RunIdentity& identity);

}  // namespace slime::roles
