#include "cli/dry_run.h"

#include <fmt/format.h>

#include <sstream>
#include <string_view>
#include <vector>

#include "loop/trial_start.h"

namespace slime::cli {
namespace {

void print(std::string_view title, const std::vector<std::string>& sentences) {
  if (sentences.empty()) return;
  fmt::print("\n{}\n", title);
  for (const std::string& sentence : sentences) {
    std::istringstream lines(sentence);
    for (std::string line; std::getline(lines, line);) fmt::print("  {}\n", line);
  }
}

}  // namespace

int dry_run(config::ParsedFlags& flags, const std::string& place) {
  const loop::TrialStart start = loop::try_start(flags);
  fmt::print("{} --dry-run: {} flags, {} notes, {} paths not here, {} refusals\n",
             flags.config.train_async ? "slime train-async" : "slime train", flags.given.size() - 1,
             flags.warnings.size(), start.absent.size(), start.problems.size());
  // A login node has no GPU; a run on others is checked all the same.
  const bool is_chosen = place.find("--device auto") != std::string::npos;
  fmt::print("Here it would be {}.{}\n", place,
             is_chosen && flags.config.device.peek() == "cpu"
                 ? " To check a run on GPUs: --dry-run --device cuda."
                 : "");
  print("Notes:", flags.warnings);
  print("Not on this machine; a run needs them, and what is in them was not checked:",
        start.absent);
  print("A run would refuse:", start.problems);
  fmt::print("\nA run would {}. Nothing was loaded or written{}.\n",
             !start.problems.empty() ? "not begin"
             : start.absent.empty()  ? "begin"
                                     : "begin where these paths are",
             start.imported_functions ? "; functions of yours were imported" : "");
  return start.problems.empty() ? 0 : 2;
}

}  // namespace slime::cli
