#pragma once

/// The progress of a run, for the person who started it. On a terminal a few lines are redrawn in
/// place about eight times a second; elsewhere (a log, CI) each finished step is one line, and
/// while a phase goes on for long a line says every 30 seconds how far it is. Both end with a
/// table.
///
///   SystemClock clock;
///   Progress progress({.title = "arithmetic", .num_steps = 40}, detect_terminal(), clock);
///   for (int64_t step = 0; step < 40; ++step) {
///     progress.phase_begin("generate", "samples", 128);
///     ...                                       // a callback: progress.reached(done, tokens);
///     progress.phase_begin("train");
///     ...
///     progress.step_done({.step = step, .figures = {{"reward", 0.61}, {"kl", 0.002}}});
///   }
///   progress.finish("arithmetic: 40 steps", {.rows = {{"reward", "0.18 -> 0.97"}}});
///
/// Every function may be called from any thread and returns at once; the display's own thread
/// writes. While a Progress lives nothing else may write to standard output: pass lines to
/// `message`.

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "core/clock.h"
#include "report/progress_lines.h"
#include "report/run_times.h"

namespace slime::report {

struct ProgressOptions {
  std::string title;  // of the run
  /// In front of each line of the log: which run of this process it is of. Empty: it is the only one.
  std::string label = {};
  int64_t num_steps = 0;
  int64_t first_step = 0;  // above 0 in a resumed run
};

class Progress final {
 public:
  /// `clock` outlives the display.
  Progress(ProgressOptions options, const Terminal& terminal, const Clock& clock);
  /// Leaves the terminal as it is after the last redraw.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Ends the phase before it. A phase of the same name within one step adds to its time. `unit`
  /// and `total` say what `reached` counts; a total of 0 is not known.
  void phase_begin(std::string_view name, std::string_view unit = {}, int64_t total = 0);

  /// Since this phase began `units` have been done, with `tokens` tokens in all.
  void reached(int64_t units, int64_t tokens);

  /// Seconds of each phase of the step that runs, the one under way included: what the loop writes
  /// as "phase/NAME".
  std::vector<PhaseTime> phase_times();

  /// Ends the phase and the step.
  void step_done(StepSummary summary);

  /// The newest value of an evaluation, as in ("accuracy", 0.74). Shown until the next one of that
  /// name.
  void evaluated(std::string_view name, double value);

  /// A line above the display, or in the log, made safe to print: it may quote a sample.
  void message(std::string_view line);

  /// Ends the display with a table. Rows with the share of each phase in the run's time are added.
  void finish(std::string_view title, ClosingTable table);

 private:
  void redraw_until_stopped(const std::stop_token& stop);
  void report_until_stopped(const std::stop_token& stop);
  /// Clears what was drawn last; the caller holds output_.
  std::string erase_sequence(int width) const;
  static void print(std::string_view text);
  /// A line of the log; the caller holds mutex_.
  void print_line(std::string_view line);
  void end_phase();
  void update_times();
  void stop_display();

  const Terminal terminal_;
  const std::string label_;
  const Clock& clock_;

  std::mutex mutex_;
  std::condition_variable_any changed_;  // there is a message
  DisplayState state_;                   // guarded by mutex_
  std::string messages_;        // guarded by mutex_; whole lines that wait for the display's thread
  RunTimes times_;              // guarded by mutex_
  Clock::TimePoint last_line_;  // guarded by mutex_; of a log
  int64_t phase_tokens_ = 0;    // guarded by mutex_

  std::vector<int>
      drawn_widths_;  // of the lines on the screen; only the display's thread, or after it ended
  std::jthread display_;  // redraws a live terminal, or breaks the silence of a log
};

}  // namespace slime::report
