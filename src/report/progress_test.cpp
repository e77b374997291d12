#include "report/progress.h"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "core/interrupt.h"
#include "report/run_summary.h"

namespace slime::report {
namespace {

constexpr Terminal kPlain{};
constexpr Terminal kFull{.is_live = true, .has_color = true, .has_unicode = true};

DisplayState state_after_12_of_40_steps() {
  DisplayState state;
  state.title = "arithmetic";
  state.num_steps = 40;
  state.steps_done = 12;
  state.phase = "generate";
  state.phase_seconds = 1.25;
  state.units_done = 96;
  state.units_total = 128;
  state.unit = "samples";
  state.tokens_per_second = 1840.4;
  state.figures = {{"reward", 0.6127}, {"kl", 0.00012}};
  state.evaluations = {{"accuracy", 0.75}};
  state.curve = {0.1, 0.2, 0.6127};
  state.phase_times = {{"generate", 1.5, 1840.4}, {"reward", 0.001}, {"train", 2.25}};
  state.memory = {.now = 1.52, .peak = 3.714, .holders = {{"gradients", 2}, {"weights", 1.5}}};
  state.seconds_left = 75;
  return state;
}

class SteppedClock final : public Clock {
 public:
  TimePoint now() const override { return now_.load(); }
  double unix_seconds() const override { return 0; }
  void pass(double seconds) {
    now_ =
        now_.load() + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  }

 private:
  std::atomic<TimePoint> now_;  // the display's own thread reads it
};

TEST(Progress, ALogGetsOneLinePerStep) {
  EXPECT_EQ(step_line(state_after_12_of_40_steps()),
            "step 12/40  reward 0.613  kl 1.20e-04  accuracy 0.750  3.75 s (generate 1.50 at 1,840 "
            "tok/s, train 2.25)  1.52 GiB, peak 3.71 (gradients 2.00, weights 1.50)  1:15 left");
}

TEST(Progress, TheLiveDisplayWithoutColourOrUnicodeIsPlainAscii) {
  const auto lines = live_lines(state_after_12_of_40_steps(), kPlain, 79);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0],
            "arithmetic  step 12/40  ###########...........................  30 %  1:15 left");
  EXPECT_EQ(lines[1], "  generate  1.2 s  96/128 samples  1,840 tok/s");
  EXPECT_EQ(lines[2], "  reward 0.613  accuracy 0.750  kl 1.20e-04");
  EXPECT_EQ(
      live_lines(state_after_12_of_40_steps(), kPlain, 120)[3],
      "  last step 3.75 s: generate 1.50 at 1,840 tok/s  train 2.25  memory 1.52 GiB, peak 3.71");
}

TEST(Progress, NoLineIsWiderThanTheTerminal) {
  for (const int width : {10, 39, 40, 60, 80, 200}) {
    for (const std::string& line : live_lines(state_after_12_of_40_steps(), kFull, width)) {
      EXPECT_LE(display_width(line), width) << line;
    }
  }
}

TEST(Progress, ColourIsClosedWhereALineIsCut) {
  EXPECT_EQ(clip_to_width("\x1b[1mbold text\x1b[0m", 4), "\x1b[1mbold\x1b[0m");
  EXPECT_EQ(clip_to_width("r\u00e9sum\u00e9", 2), "r\u00e9");
}

TEST(Progress, TimesOfPhasesAndTheTimeLeftComeFromTheClock) {
  SteppedClock clock;
  testing::internal::CaptureStdout();
  {
    Progress progress({.title = "run", .num_steps = 3}, kPlain, clock);
    for (int64_t step = 0; step < 2; ++step) {
      progress.phase_begin("generate", "samples", 8);
      progress.reached(8, 100);
      clock.pass(2);
      progress.phase_begin("train");
      clock.pass(1);
      progress.step_done({.step = step,
                          .figures = {{"reward", 0.5}},
                          .tokens_per_second = {{"generate", 50}, {"train", 1200}}});
    }
    progress.message("saved");
    progress.finish("run: 2 steps", {.rows = {{"reward", "0.5"}}});
  }
  // print() writes to the descriptor, which gtest captures.
  EXPECT_EQ(
      testing::internal::GetCapturedStdout(),
      "step 1/3  reward 0.500  3.00 s (generate 2.00 at 50 tok/s, train 1.00 at 1,200 tok/s)  "
      "0:06 left\n"
      "step 2/3  reward 0.500  3.00 s (generate 2.00 at 50 tok/s, train 1.00 at 1,200 tok/s)  "
      "0:03 left\n"
      "saved\n"
      "\nrun: 2 steps\n\n  reward  0.5\n  time    0:06  (generate 67 %, train 33 %)\n\n");
}

/// What a run prints at its end in a stage of a script.
std::string end_of_stage(ClosingTable table) {
  Terminal terminal = kPlain;
  terminal.stage = "1 of 2";
  SteppedClock clock;
  testing::internal::CaptureStdout();
  {
    Progress progress({.title = "run", .num_steps = 1}, terminal, clock);
    clock.pass(75);
    progress.finish("run", std::move(table));
  }
  return testing::internal::GetCapturedStdout();
}

TEST(Progress, AStageOfAScriptEndsWithALineUnlessItWasInterrupted) {
  ClosingTable ended{.rows = {{"rollout steps", "6 of 6"},
                              {"checkpoint", "runs/a/latest (rollout 5)"},
                              {"report", "slime report runs/a", /*says_what_next=*/true}}};
  EXPECT_EQ(end_of_stage(ended),
            "stage 1 of 2 is done: rollout steps 6 of 6, checkpoint runs/a/latest (rollout 5), "
            "time 1:15\n");
  ended.is_interrupted = true;
  const std::string table = end_of_stage(ended);
  EXPECT_NE(table.find("\nrun\n"), std::string::npos);
  EXPECT_NE(table.find("slime report runs/a"), std::string::npos);
}

TEST(Progress, ANameOfADataSetSaysNothingOfTheRun) {
  const ClosingTable ended{.rows = {{"to go on", "0.1 -> 0.2"},
                                    {"interrupted", "0.3 -> 0.4"},
                                    {"report", "0.5 -> 0.6"}}};
  EXPECT_EQ(end_of_stage(ended),
            "stage 1 of 2 is done: to go on 0.1 -> 0.2, interrupted 0.3 -> 0.4, report 0.5 -> 0.6, "
            "time 1:15\n");
}

TEST(Progress, AnInterruptedRunIsOneWhetherItSavesOrNot) {
  for (const bool saves : {true, false}) {
    const RunSummary summary(saves);
    EXPECT_TRUE(summary.table(3, 6, "runs/a", /*interrupted=*/true).is_interrupted) << saves;
    EXPECT_FALSE(summary.table(6, 6, "runs/interrupted", /*interrupted=*/false).is_interrupted);
  }
}

TEST(Progress, AMessageThatQuotesASampleDoesNotSteerTheTerminal) {
  SteppedClock clock;
  testing::internal::CaptureStdout();
  {
    Progress progress({.title = "run", .num_steps = 1}, kPlain, clock);
    progress.message("a sample failed: \x1b[2J\xc2\x9b");
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "a sample failed: \\x1b[2J\\x9b\n");
}

TEST(Progress, PhaseTimesIncludeThePhaseUnderWay) {
  SteppedClock clock;
  Progress progress({.title = "run", .num_steps = 1}, kPlain, clock);
  progress.phase_begin("generate");
  clock.pass(2);
  progress.phase_begin("train");
  clock.pass(0.5);
  const std::vector<PhaseTime> times = progress.phase_times();
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].name, "generate");
  EXPECT_EQ(times[0].seconds, 2.0);
  EXPECT_EQ(times[1].seconds, 0.5);
}

TEST(Progress, AResumedRunCountsFromItsFirstStep) {
  SteppedClock clock;
  testing::internal::CaptureStdout();
  {
    Progress progress({.title = "run", .num_steps = 12, .first_step = 10}, kPlain, clock);
    clock.pass(4);
    progress.step_done({.step = 10});
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "step 11/12  0:04 left\n");
}

TEST(Progress, TheLiveDisplayEndsWithItsTableAndItsMessages) {
  SteppedClock clock;
  testing::internal::CaptureStdout();
  {
    Progress progress({.title = "run", .num_steps = 2}, kFull, clock);
    progress.message("first");
    progress.step_done({.step = 0, .figures = {{"reward", 1}}});
    progress.finish("done", {});
  }
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_NE(text.find("first\n"), std::string::npos);
  EXPECT_NE(text.find("\x1b[J"), std::string::npos);  // the display is erased before the table
  EXPECT_GT(text.find("done"), text.rfind("\x1b[J"));
}

TEST(Progress, LinesOfOneOfSeveralRunsBeginWithItsName) {
  SteppedClock clock;
  testing::internal::CaptureStdout();
  {
    Progress progress({.title = "run", .label = "sums", .num_steps = 2}, kPlain, clock);
    progress.message("first\nsecond");
    progress.step_done({.step = 0});
  }
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_TRUE(text.starts_with("sums: first\nsums: second\nsums: step 1/2")) << text;
}

TEST(Progress, WhatCtrlCSaysStaysAboveTheLiveDisplay) {
  SteppedClock clock;
  testing::internal::CaptureStdout();
  {
    const core::Interrupt interrupt;
    Progress progress({.title = "run", .num_steps = 2}, kFull, clock);
    std::raise(SIGINT);
    progress.finish("done", {});
  }
  const std::string text = testing::internal::GetCapturedStdout();
  const std::size_t words = text.find("ending this step, then saving");
  ASSERT_NE(words, std::string::npos);
  // A frame's lines follow; what is erased next are those alone.
  EXPECT_LT(words, text.find("step 0/2", words));
  EXPECT_EQ(core::Interrupt::take_words(), "") << "they are said once";
}

TEST(Progress, TheRateIsThatOfThePhaseSoFar) {
  SteppedClock clock;
  testing::internal::CaptureStdout();
  {
    Progress progress({.title = "run", .num_steps = 2}, kFull, clock);
    progress.phase_begin("generate", "prompts", 32);
    clock.pass(2);
    progress.reached(8, 100);
    progress.reached(16, 200);
    progress.finish("done", {});  // draws once more before it ends
  }
  EXPECT_NE(testing::internal::GetCapturedStdout().find("2.0 s  16/32 prompts  100 tok/s"),
            std::string::npos);
}

/// Waits until the display's own thread has written something after `size` bytes; gtest captures
/// into a file.
bool waits_for_output_after(off_t size) {
  for (int i = 0; i < 1000; ++i) {
    struct stat file {};
    if (::fstat(STDOUT_FILENO, &file) == 0 && file.st_size > size) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST(Progress, InALogALongPhaseSaysEvery30SecondsHowFarItIs) {
  SteppedClock clock;
  testing::internal::CaptureStdout();
  const std::string first = "step 1/3: generate 0:31  8/32 prompts  100 tok/s\n";
  bool has_first = false, has_second = false;
  {
    Progress progress({.title = "run", .num_steps = 3}, kPlain, clock);
    progress.phase_begin("generate", "prompts", 32);
    progress.reached(8, 3100);
    clock.pass(29);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // not yet
    clock.pass(2);
    has_first = waits_for_output_after(0);
    clock.pass(30);
    has_second = waits_for_output_after(static_cast<off_t>(first.size()));
    clock.pass(1);
    progress.phase_begin("train");
    clock.pass(28);  // 29 seconds after the last line
    progress.step_done({.step = 0});
  }
  EXPECT_TRUE(has_first);
  EXPECT_TRUE(has_second);
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            first + "step 1/3: generate 1:01  8/32 prompts  51 tok/s\n" +
                "step 1/3  90.00 s (generate 62.00, train 28.00)  3:00 left\n");
}

TEST(Progress, APhaseThatCountsNothingSaysHowLongItHasTaken) {
  DisplayState state;
  state.num_steps = 40;
  state.steps_done = 12;
  state.phase = "train";
  state.phase_seconds = 95;
  EXPECT_EQ(phase_report(state), "step 13/40: train 1:35");
  state.steps_done = 40;  // an evaluation after the last step
  EXPECT_EQ(phase_report(state), "step 40/40: train 1:35");
}

TEST(Progress, NumbersAreShortAndReadable) {
  EXPECT_EQ(figure_text(0), "0.000");
  EXPECT_EQ(figure_text(-12.345), "-12.35");
  EXPECT_EQ(figure_text(1234567), "1,234,567");
  EXPECT_EQ(figure_text(9.3e18), "9.30e+18");  // more than an integer holds
  EXPECT_EQ(figure_text(-4e25), "-4.00e+25");
  EXPECT_EQ(figure_text(0.0000123), "1.23e-05");
  EXPECT_EQ(clock_text(3700), "1:01:40");
  EXPECT_EQ(count_text(-1000), "-1,000");
  EXPECT_EQ(count_text(999), "999");
}

}  // namespace
}  // namespace slime::report
