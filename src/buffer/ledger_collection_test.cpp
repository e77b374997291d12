#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <random>

#include "buffer/ledger.h"
#include "buffer/ledger_audit.h"
#include "buffer/ledger_file.h"
#include "core/error.h"

namespace slime::buffer {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

fs::path fresh_ledger(const std::string& name) {
  fs::path path = fs::path(testing::TempDir()) / name;
  fs::remove(path);
  return path;
}

/// Steps of four prompts with ten tokens each: two are trained, one is filtered, one stays open for
/// the next step. Returns the position of the checkpoint behind each.
std::vector<int64_t> run_steps(Ledger& ledger, int64_t first, int64_t end) {
  std::vector<int64_t> positions;
  for (int64_t step = first; step < end; ++step) {
    const int64_t base = 4 * step;
    for (int64_t i = 0; i < 4; ++i) ledger.append({.ordinal = base + i});
    if (step > 0)
      ledger.append(
          {.ordinal = base - 1, .outcome = Outcome::kTrained, .step = step, .tokens = 10});
    ledger.append({.ordinal = base, .outcome = Outcome::kTrained, .step = step, .tokens = 10});
    ledger.append({.ordinal = base + 1, .outcome = Outcome::kTrained, .step = step, .tokens = 10});
    ledger.append(
        {.ordinal = base + 2, .outcome = Outcome::kFiltered, .reason = "zero_std", .tokens = 10});
    ledger.append(LedgerTotals{.step = step,
                               .next_ordinal = base + 4,
                               .open_prompts = 1,
                               .generated = 40 * (step + 1),
                               .pending = 10});
    positions.push_back(ledger.commit());
  }
  return positions;
}

void expect_sound(const fs::path& path, int64_t position, int64_t step) {
  const LedgerAudit audit = audit_ledger(path, position);
  EXPECT_THAT(audit.problems, testing::ElementsAre());
  ASSERT_TRUE(audit.checkpoint.has_value());
  EXPECT_EQ(audit.checkpoint->totals.step, step);
  EXPECT_EQ(audit.checkpoint->prompts.dispatched, 4 * (step + 1));
  EXPECT_EQ(audit.checkpoint->accounted_tokens(), 40 * (step + 1));
}

TEST(LedgerCollection, KeepsPositionsAndAddsUp) {
  const fs::path path = fresh_ledger("collected.ledger");
  Ledger ledger = Ledger::create(path);
  std::vector<int64_t> positions = run_steps(ledger, 0, 20);
  const auto before = fs::file_size(path);
  const LedgerSummary summary = ledger.summary();
  EXPECT_GT(ledger.collect(positions[17]), 0);
  EXPECT_LT(fs::file_size(path), before / 4);
  EXPECT_EQ(ledger.summary(), summary);
  EXPECT_EQ(ledger.size(), positions[19]);
  for (int64_t step = 17; step < 20; ++step)
    expect_sound(path, positions[static_cast<std::size_t>(step)], step);
  const std::vector<int64_t> more = run_steps(ledger, 20, 22);
  expect_sound(path, more[1], 21);
}

TEST(LedgerCollection, OpensAtThePositionsThatAreLeft) {
  const fs::path path = fresh_ledger("reopened.ledger");
  std::vector<int64_t> positions;
  {
    Ledger ledger = Ledger::create(path);
    positions = run_steps(ledger, 0, 10);
    ledger.collect(positions[7]);
  }
  for (const std::size_t step : {std::size_t{9}, std::size_t{8}, std::size_t{7}}) {
    Ledger ledger = Ledger::open_at(path, positions[step]);
    EXPECT_EQ(ledger.totals()->step, static_cast<int64_t>(step));
    EXPECT_EQ(ledger.summary().dispatched, 4 * static_cast<int64_t>(step + 1));
    EXPECT_EQ(ledger.summary().in_flight, 1);
  }
  try {
    Ledger::open_at(path, positions[3]);
    FAIL() << "its records are gone";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("were collected, as --rollout-queue-online-gc does"));
  }
  Ledger ledger = Ledger::open_at(path, positions[7]);  // behind three rollbacks
  const std::vector<int64_t> again = run_steps(ledger, 8, 10);
  expect_sound(path, again[1], 9);
  EXPECT_GT(ledger.collect(again[0]), 0);
  expect_sound(path, again[1], 9);
  EXPECT_EQ(audit_ledger(path).num_rollbacks, 0);
}

TEST(LedgerCollection, NothingIsCollectedAcrossARollback) {
  const fs::path path = fresh_ledger("across.ledger");
  Ledger ledger = Ledger::create(path);
  const std::vector<int64_t> positions = run_steps(ledger, 0, 6);
  ledger.roll_back(positions[2]);
  EXPECT_EQ(ledger.collect(positions[4]), 0);
  EXPECT_GT(ledger.collect(positions[1]), 0);
  expect_sound(path, positions[2], 2);
}

TEST(LedgerCollection, TwiceIsAsOnce) {
  const fs::path once = fresh_ledger("once.ledger"), twice = fresh_ledger("twice.ledger");
  for (const fs::path& path : {once, twice}) {
    Ledger ledger = Ledger::create(path);
    const std::vector<int64_t> positions = run_steps(ledger, 0, 12);
    if (path == twice) ledger.collect(positions[5]);
    ledger.collect(positions[9]);
  }
  const auto content = [](const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_EQ(content(once), content(twice));
}

TEST(LedgerCollection, ALongRunTakesNoMoreRoomThanAShortOne) {
  const fs::path path = fresh_ledger("flat.ledger");
  Ledger ledger = Ledger::create(path);
  std::vector<int64_t> positions;
  uintmax_t largest = 0, of_ten_steps = 0;
  for (int64_t step = 0; step < 300; ++step) {
    positions.push_back(run_steps(ledger, step, step + 1).back());
    if (step > 0) ledger.collect(positions[static_cast<std::size_t>(step - 1)]);
    largest = std::max(largest, fs::file_size(path));
    if (step == 10) of_ten_steps = largest;
  }
  EXPECT_LT(largest, of_ten_steps + 100) << "of 300 steps; positions reach " << positions.back();
  EXPECT_GT(positions.back(), 70'000);
}

TEST(LedgerCollection, ABranchIsCutAtItsPosition) {
  const fs::path path = fresh_ledger("parent.ledger"), branch = fresh_ledger("branch.ledger");
  Ledger ledger = Ledger::create(path);
  const std::vector<int64_t> positions = run_steps(ledger, 0, 10);
  ledger.collect(positions[4]);
  copy_ledger(path, branch, positions[6]);
  expect_sound(branch, positions[6], 6);
  EXPECT_EQ(audit_ledger(branch).num_behind, 0);
  Ledger of_branch = Ledger::open_at(branch, positions[6]);
  EXPECT_EQ(of_branch.size(), positions[6]);
  expect_sound(branch, run_steps(of_branch, 7, 9).back(), 8);
  fs::remove(branch);
  EXPECT_THROW(copy_ledger(path, branch, positions[2]), ConfigError) << "collected";
  EXPECT_THROW(copy_ledger(path, branch, positions[6] + 1), ConfigError) << "no line's end";
}

/// A process that appends and collects is killed at random instants: what is left opens at a position
/// that a commit returned, and adds up.
TEST(LedgerCollection, KilledAtAnyInstantTheLedgerIsWhole) {
  std::mt19937 random(7);
  int num_checked = 0;
  for (int round = 0; round < 40; ++round) {
    const fs::path path = fresh_ledger("killed.ledger");
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      Ledger ledger = Ledger::create(path);
      int64_t last = 0;
      for (int64_t step = 0;; ++step) {
        const int64_t position = run_steps(ledger, step, step + 1).back();
        // Two checkpoints are kept: the ledger is collected to the older one.
        const std::array<int64_t, 3> told{step, position, last};
        if (::write(pipe[1], told.data(), sizeof(told)) != sizeof(told)) ::_exit(1);
        if (last > 0) ledger.collect(last);
        last = position;
      }
    }
    ::close(pipe[1]);
    ::usleep(4000 + random() % 50000);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    std::array<int64_t, 3> told{}, next{};
    while (::read(pipe[0], next.data(), sizeof(next)) == sizeof(next)) told = next;
    ::close(pipe[0]);
    if (told[2] == 0) continue;  // it died before its second step
    ++num_checked;
    expect_sound(path, told[1], told[0]);
    Ledger ledger = Ledger::open_at(path, told[2]);  // the older one, as where the newer is damaged
    expect_sound(path, run_steps(ledger, told[0], told[0] + 2).back(), told[0] + 1);
  }
  EXPECT_GT(num_checked, 3);
}

TEST(LedgerCollection, SumsOfAnotherFormAreNoLineOfALedger) {
  const LedgerSums sums{.position = 90, .ended = {{0, 3}, {5, 7}}, .prompts = {7, 0, 0, 0}};
  const std::string line = to_line(sums);
  const auto read = parse_ledger_line(line.substr(0, line.size() - 1));
  ASSERT_TRUE(read && std::holds_alternative<LedgerSums>(*read));
  EXPECT_EQ(std::get<LedgerSums>(*read).ended, sums.ended);
  for (const LedgerSums& wrong :
       {LedgerSums{.position = 9, .ended = {{3, 1}}},
        LedgerSums{.position = 9, .ended = {{0, 3}, {4, 5}}},
        LedgerSums{.position = 9, .discarded = -1},
        LedgerSums{.position = 9, .prompts = {-1, 0, 0, 0}}, LedgerSums{.position = 0}}) {
    const std::string text = to_line(wrong);
    EXPECT_FALSE(parse_ledger_line(text.substr(0, text.size() - 1))) << text;
  }
}

}  // namespace
}  // namespace slime::buffer
