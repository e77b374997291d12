#pragma once

/// A simulated run with all of its processes.

#include <filesystem>
#include <string>

#include "simulate/process.h"
#include "simulate/scenario.h"

namespace slime::simulate {

struct Outcome {
  std::string problem;  // what must not be; empty: all is well
  Figures figures;      // of the last process
  int64_t num_processes = 0;
};

/// `ledger`: a file that the run may write and overwrite.
Outcome simulate(const Scenario& scenario, const std::filesystem::path& ledger,
                 const Trace& trace = {});

}  // namespace slime::simulate
