#pragma once

/// A run whose loop is another program's: its stations behind a door of verbs.

#include <filesystem>

namespace slime::loop {

struct Stations;

/// Until the program closes the run, or Ctrl-C. Returns the exit code. `folder`: of the door
/// (loop/verb_door.h). Throws what a step throws, when whoever waits was told. Trainers that are lost are
/// not started again: the steps would go back, and the loop elsewhere would not.
int run_by_verbs(Stations& run, const std::filesystem::path& folder);

}  // namespace slime::loop
