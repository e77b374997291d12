#include "report/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace slime::report {
namespace {

/// A run's file has about so many lines while its length doubles.
constexpr double kLinesPerRun = 2000;

int64_t milliseconds(double seconds) { return std::llround(seconds * 1000); }

}  // namespace

std::string engine_lane(int64_t index) {
  return index == 0 ? "engine" : fmt::format("engine {}", index);
}

std::string_view engine_phase(engine::Activity activity) {
  switch (activity) {
    case engine::Activity::kGenerates:
      return "generate";
    case engine::Activity::kPaused:
      return "paused";
    case engine::Activity::kIdle:
      break;
  }
  return "";
}

Timeline::Timeline(std::filesystem::path path, const Clock& clock)
    : path_(std::move(path)),
      clock_(clock),
      run_begin_(clock.now()),
      step_begin_(run_begin_),
      line_begin_(run_begin_),
      line_time_(clock.unix_seconds()) {}

void Timeline::enter(std::string_view lane, std::string_view phase) {
  const Clock::TimePoint now = clock_.now();
  const std::lock_guard lock(mutex_);
  enter(lanes_[std::string(lane)], phase, now);
}

void Timeline::join(std::string_view lane, std::string_view phase) {
  const Clock::TimePoint now = clock_.now();
  const std::lock_guard lock(mutex_);
  Lane& joined = lanes_[std::string(lane)];
  if (++joined.num_joined == 1) enter(joined, phase, now);
}

void Timeline::leave(std::string_view lane) {
  const Clock::TimePoint now = clock_.now();
  const std::lock_guard lock(mutex_);
  Lane& left = lanes_[std::string(lane)];
  if (--left.num_joined == 0) enter(left, "", now);
}

void Timeline::enter(Lane& lane, std::string_view phase, Clock::TimePoint now) {
  if (lane.phase == phase) return;
  add_span(lane, now);
  lane.phase = phase;
  lane.since = now;
}

/// The phase that the lane is in ends, or is divided.
void Timeline::add_span(Lane& lane, Clock::TimePoint now) const {
  if (lane.phase.empty()) return;
  lane.seconds[lane.phase] += seconds_between(std::max(lane.since, step_begin_), now);
  const double begin = seconds_between(line_begin_, std::max(lane.since, line_begin_));
  const double end = seconds_between(line_begin_, now);
  std::vector<Span>& spans = lane.spans;
  if (lane.is_summed) {
    add_to_sums(spans, {lane.phase, begin, end});
  } else if (!spans.empty() && spans.back().phase == lane.phase && spans.back().end == begin) {
    spans.back().end = end;  // a step or a call between them
  } else {
    spans.push_back({lane.phase, begin, end});
  }
  if (spans.size() <= kMostSpans) return;
  lane.is_summed = true;
  for (const Span& span : std::exchange(spans, {})) add_to_sums(spans, span);
}

void Timeline::add_to_sums(std::vector<Span>& sums, const Span& span) {
  const auto same = std::ranges::find(sums, span.phase, &Span::phase);
  if (same == sums.end()) {
    sums.push_back({span.phase, 0, span.end - span.begin});
  } else {
    same->end += span.end - span.begin;
  }
}

void Timeline::end_spans(Clock::TimePoint now) {
  for (auto& [name, lane] : lanes_) {
    add_span(lane, now);
    lane.since = now;
  }
}

double Timeline::seconds(std::string_view lane, std::string_view phase) const {
  const Clock::TimePoint now = clock_.now();
  const std::lock_guard lock(mutex_);
  const auto found = lanes_.find(lane);
  if (found == lanes_.end()) return 0;
  const auto known = found->second.seconds.find(std::string(phase));
  double seconds = known == found->second.seconds.end() ? 0 : known->second;
  if (found->second.phase == phase)
    seconds += seconds_between(std::max(found->second.since, step_begin_), now);
  return seconds;
}

double Timeline::step_seconds() const {
  const Clock::TimePoint now = clock_.now();
  const std::lock_guard lock(mutex_);
  return seconds_between(step_begin_, now);
}

void Timeline::end_step(int64_t step) {
  const Clock::TimePoint now = clock_.now();
  std::string line;
  {
    const std::lock_guard lock(mutex_);
    end_spans(now);
    for (auto& [name, lane] : lanes_) lane.seconds.clear();
    step_begin_ = now;
    ++line_steps_;
    last_step_ = step;
    const double run = seconds_between(run_begin_, now);
    if (seconds_between(line_begin_, now) * kLinesPerRun >= run) line = take_line(now);
  }
  write(line);
}

void Timeline::finish() {
  const Clock::TimePoint now = clock_.now();
  std::string line;
  {
    const std::lock_guard lock(mutex_);
    end_spans(now);
    if (last_step_ >= 0) line = take_line(now);
  }
  write(line);
}

/// The caller holds mutex_.
std::string Timeline::take_line(Clock::TimePoint now) {
  std::string line =
      fmt::format(R"({{"step": {}, "steps": {}, "time": {:.3f}, "ms": {})", last_step_, line_steps_,
                  line_time_, milliseconds(seconds_between(line_begin_, now)));
  std::string summed;
  for (auto& [name, lane] : lanes_) {
    std::string spans;
    double begin = 0;
    for (const Span& span : lane.spans) {
      if (!lane.is_summed) begin = span.begin;
      const int64_t from = milliseconds(begin);
      begin += span.end - span.begin;
      const int64_t ms = milliseconds(begin) - from;
      if (ms > 0)
        spans +=
            fmt::format(R"({}["{}", {}, {}])", spans.empty() ? "" : ", ", span.phase, from, ms);
    }
    if (!spans.empty()) line += fmt::format(R"(, "{}": [{}])", name, spans);
    if (!spans.empty() && lane.is_summed)
      summed += fmt::format(R"({}"{}")", summed.empty() ? "" : ", ", name);
    lane.spans.clear();
    lane.is_summed = false;
  }
  if (!summed.empty()) line += fmt::format(R"(, "summed": [{}])", summed);
  line_begin_ = now;
  line_time_ = clock_.unix_seconds();
  line_steps_ = 0;
  return line + "}\n";
}

void Timeline::write(const std::string& line) {
  if (line.empty()) return;
  if (!file_) file_.emplace(path_);
  file_->append(line);
}

}  // namespace slime::report
