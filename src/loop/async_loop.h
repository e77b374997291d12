#pragma once

namespace slime::loop {

struct Stations;

/// Trains while the engines generate (docs/async.md). Returns the exit code of the process.
int run_async_loop(Stations& run);

}  // namespace slime::loop
