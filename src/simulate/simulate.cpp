#include "simulate/simulate.h"

#include <fmt/format.h>

namespace slime::simulate {

Outcome simulate(const Scenario& scenario, const std::filesystem::path& ledger,
                 const Trace& trace) {
  if (trace) trace(describe(scenario));
  Disk disk{.ledger = ledger, .checkpoint = {}};
  Outcome outcome;
  try {
    for (bool goes_on = true; goes_on; ++outcome.num_processes) {
      Process process(scenario, disk, outcome.num_processes, trace);
      goes_on = process.run().has_value();
      outcome.figures = process.figures();
    }
  } catch (const std::exception& error) {
    outcome.problem = error.what();
    if (trace) trace(outcome.problem);
  }
  return outcome;
}

}  // namespace slime::simulate
