#pragma once

/// Timeline of a run: RUN_DIR/timeline.jsonl, for the report's lanes and for `perf/` metrics.
///
/// A lane is somebody who does one thing at a time: "trainer" (generate or wait, train, publish,
/// save, ...), "engine" (generate, paused; of several "engine", "engine 1", ...), "rollout" (queue full, update, lease: what keeps it from
/// beginning groups), "rewards", "evaluation". Where nothing is noted a lane is idle. A line:
///
///   {"step": 3, "steps": 1, "time": 1765432100.123, "ms": 812,
///    "trainer": [["wait", 0, 300], ["train", 300, 500]], "engine": [["generate", 0, 812]]}
///
/// `step` is the last of `steps` steps, `time` unix seconds of their beginning, `ms` their duration;
/// a phase begins and lasts so many milliseconds behind that. Lines are written behind steps, each
/// step at first; later a line waits until it is a two-thousandth of the run, so that the file of a
/// long run stays small. More than kMostSpans phases of a lane are summed up by name and laid end
/// to end; "summed" names those lanes. The file is only appended to; times go on.

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "engine/engine_config.h"
#include "report/tracking.h"

namespace slime::report {

/// The lane of an engine, and the phase in which it does this.
std::string engine_lane(int64_t index);
std::string_view engine_phase(engine::Activity activity);

/// Any thread, except end_step() and finish(), which are the loop's.
class Timeline {
 public:
  static constexpr std::size_t kMostSpans = 24;

  /// The file is opened with the first line. `clock` outlives the object.
  Timeline(std::filesystem::path path, const Clock& clock);

  /// From now on the lane does this; empty: nothing.
  void enter(std::string_view lane, std::string_view phase);
  /// One more, or one less, of several who do it at once: the lane does it while there are any.
  void join(std::string_view lane, std::string_view phase);
  void leave(std::string_view lane);

  /// Of a lane's phase since the last end_step().
  double seconds(std::string_view lane, std::string_view phase) const;
  /// Since the last end_step().
  double step_seconds() const;

  void end_step(int64_t step);
  /// What no line has yet.
  void finish();

 private:
  struct Span {
    std::string phase;
    double begin = 0, end = 0;  // seconds behind the line's beginning; summed up: from 0
  };
  struct Lane {
    std::string phase;  // empty: idle
    Clock::TimePoint since;
    int64_t num_joined = 0;
    std::vector<Span> spans;  // of the line
    bool is_summed = false;
    std::map<std::string, double> seconds;  // of the step
  };
  void enter(Lane& lane, std::string_view phase, Clock::TimePoint now);
  void end_spans(Clock::TimePoint now);
  void add_span(Lane& lane, Clock::TimePoint now) const;
  static void add_to_sums(std::vector<Span>& sums, const Span& span);
  std::string take_line(Clock::TimePoint now);
  void write(const std::string& line);

  const std::filesystem::path path_;
  const Clock& clock_;
  std::optional<AppendFile> file_;  // the loop's

  mutable std::mutex mutex_;
  std::map<std::string, Lane, std::less<>> lanes_;  // guarded by mutex_, as all below
  const Clock::TimePoint run_begin_;
  Clock::TimePoint step_begin_;
  Clock::TimePoint line_begin_;
  double line_time_ = 0;  // unix seconds
  int64_t line_steps_ = 0;
  int64_t last_step_ = -1;
};

}  // namespace slime::report
