#pragma once

/// The text of the progress display, as pure functions of what is known: what a terminal shows
/// while a step runs, the line that a log gets per step, and the table at the end.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/terminal.h"

namespace slime::report {

/// One number with its name, in the order of display: {"reward", 0.61}.
using Figure = std::pair<std::string, double>;

struct PhaseTime {
  std::string name;  // "generate", "reward", "train", ...
  double seconds = 0;
  double tokens_per_second = 0;  // 0: not shown
};

/// Memory of a finished step, in GiB.
struct MemoryUse {
  double now = 0;               // at its end; 0: not known, nothing is shown
  double peak = 0;              // the most while it ran
  std::vector<Figure> holders;  // of the peak, the biggest first: {"gradients", 15.0}
};

/// A finished step.
struct StepSummary {
  int64_t step = 0;  // counts from 0
  std::vector<Figure> figures =
      {};  // the first one is drawn as a curve: the reward, or the loss of SFT
  std::vector<Figure> tokens_per_second = {};  // by phase
  MemoryUse memory = {};
};

/// Everything the display knows at one instant.
struct DisplayState {
  std::string title;
  int64_t num_steps = 0;
  int64_t steps_done = 0;  // those of an earlier process of a resumed run included
  std::string phase;
  double phase_seconds = 0;  // since it began
  int64_t units_done = 0;    // of the phase: samples generated, tokens trained, ...
  int64_t units_total = 0;   // 0: not known
  std::string unit;          // "samples"
  double tokens_per_second = 0;
  std::vector<Figure> figures;         // of the last finished step
  std::vector<Figure> evaluations;     // newest value by name
  std::vector<double> curve;           // the first figure of every finished step
  std::vector<PhaseTime> phase_times;  // of the last finished step
  MemoryUse memory;                    // of the last finished step
  double seconds_left = -1;            // below 0: not known yet
};

/// The live display: three or four lines, none wider than `width`.
std::vector<std::string> live_lines(const DisplayState& state, const Terminal& terminal, int width);

/// The line of a log about a phase that takes long: "step 13/40: generate 0:31  96/128 samples".
std::string phase_report(const DisplayState& state);

/// The line of a finished step for a log.
std::string step_line(const DisplayState& state);

/// The closing table of a run.
struct ClosingTable {
  struct Row {
    std::string name, text;
    bool says_what_next = false;  // left out where more runs follow
  };
  std::vector<Row> rows;
  bool is_interrupted = false;  // the run: no other follows
};
std::string summary_table(std::string_view title, const ClosingTable& table,
                          const Terminal& terminal);

/// The same where more runs follow: "stage 1 of 2 is done: rollout steps 600 of 600, time 0:31"; without
/// the rows that say what to do next.
std::string stage_line(std::string_view stage, const ClosingTable& table);

/// 75 -> "1:15", 3,700 -> "1:01:40".
std::string clock_text(double seconds);

/// Three significant digits or so: 0.6127 -> "0.613", 0.0001234 -> "1.23e-04", 1234.5 -> "1,234".
std::string figure_text(double value);

/// 1234567 -> "1,234,567".
std::string count_text(int64_t count);

}  // namespace slime::report
