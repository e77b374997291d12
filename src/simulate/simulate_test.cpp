#include "simulate/simulate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace slime::simulate {
namespace {

namespace fs = std::filesystem;

/// In memory where that is a folder.
fs::path ledger_file(int64_t number) {
  const fs::path shared = "/dev/shm";
  const fs::path folder = fs::is_directory(shared) ? shared : fs::temp_directory_path();
  return folder / fmt::format("slime_simulate_{}_{}", ::getpid(), number);
}

std::string trace_of(uint64_t seed, const fs::path& ledger) {
  std::vector<std::string> lines;
  simulate(scenario_of(seed), ledger, [&lines](const std::string& line) { lines.push_back(line); });
  if (lines.size() > 30) lines.erase(lines.begin() + 1, lines.end() - 29);
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text + fmt::format("slime simulate --seed {} --trace", seed);
}

class Schedules : public testing::TestWithParam<uint64_t> {};

/// 1,250 in each of eight cases, so that they can run side by side.
TEST_P(Schedules, EachPromptEndsOnceAndNoTokenIsLost) {
  const fs::path ledger = ledger_file(static_cast<int64_t>(GetParam()));
  for (uint64_t i = 0; i < 1250; ++i) {
    const uint64_t seed = GetParam() * 1250 + i;
    const Outcome outcome = simulate(scenario_of(seed), ledger);
    ASSERT_EQ(outcome.problem, "") << trace_of(seed, ledger);
  }
  fs::remove(ledger);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Schedules, testing::Range<uint64_t>(0, 8));

}  // namespace
}  // namespace slime::simulate
