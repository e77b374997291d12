/// The program slime-bench: measurements, apart from the program that is measured.

#include <string>
#include <vector>

#include "bench/runner.h"
#include "cli/program.h"
#include "cli/worker.h"

int main(int argc, char** argv) {
  const std::vector<std::string> words = slime::cli::begin_program(argc, argv);
  // Engines and ranks that a measurement starts are workers of this program.
  if (!words.empty() && words[0] == "worker")
    return slime::cli::run_command("slime-bench worker", slime::cli::worker,
                                   std::span(words).subspan(1));
  return slime::cli::run_command("slime bench", slime::bench::run, words);
}
