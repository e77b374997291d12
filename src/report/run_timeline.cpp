#include "report/run_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>

#include "core/field_reader.h"
#include "report/run_files.h"

namespace slime::report {
namespace {

namespace fs = std::filesystem;

// Of a file that nobody knows: what a line may say.
/// Of more engines than these the first ones are shown.
constexpr std::array<std::string_view, 12> kLanes{"trainer",  "engine",   "engine 1", "engine 2",
                                                  "engine 3", "engine 4", "engine 5", "engine 6",
                                                  "engine 7", "rollout",  "rewards",  "evaluation"};
constexpr std::size_t kMostPhases = 16;  // of a lane; the rest are one
constexpr std::size_t kMostSpansPerLine = 256;
constexpr std::size_t kMostLines = 200'000;
constexpr std::size_t kMostSpans = 2'000'000;
constexpr std::size_t kLongestName = 40;
constexpr double kLongestLine = 1e7;  // seconds

struct Span {
  std::size_t phase = 0;
  double begin = 0, seconds = 0;
};

struct Line {
  int64_t step = 0;
  double begin = 0, seconds = 0;  // through the lines
  std::array<std::vector<Span>, kLanes.size()> lanes;
  std::size_t num_spans() const {
    std::size_t count = 0;
    for (const auto& lane : lanes) count += lane.size();
    return count;
  }
};

std::optional<double> bounded(const json::value& value, double most) {
  if (!value.is_number()) return std::nullopt;
  const auto number = value.to_number<double>();
  if (!(number >= 0 && number <= most)) return std::nullopt;
  return number;
}

class Reader {
 public:
  explicit Reader(const TimelineLimits& limits) : limits_(limits) {}

  bool add(const json::object& object) {
    const json::value* step = object.if_contains("step");
    const json::value* ms = object.if_contains("ms");
    const auto number = step == nullptr ? std::nullopt : whole_number(*step);
    const auto length = ms == nullptr ? std::nullopt : bounded(*ms, kLongestLine * 1000);
    if (!number || !length || *number < 0) return false;
    Line line{.step = *number, .begin = seconds_, .seconds = *length / 1000, .lanes = {}};
    for (std::size_t lane = 0; lane < kLanes.size(); ++lane) {
      const json::value* spans = object.if_contains(kLanes.at(lane));
      if (spans == nullptr) continue;
      if (!spans->is_array() || !add_spans(spans->get_array(), lane, line)) return false;
    }
    seconds_ += line.seconds;
    num_spans_ += line.num_spans();
    lines_.push_back(std::move(line));
    return true;
  }

  bool is_full() const { return lines_.size() >= kMostLines || num_spans_ >= kMostSpans; }
  std::size_t num_lines() const { return lines_.size(); }

  json::object to_json() const {
    if (lines_.empty() || seconds_ <= 0) return {};
    json::array lanes;
    for (std::size_t lane = 0; lane < kLanes.size(); ++lane)
      if (!phases_.at(lane).empty()) lanes.push_back(lane_json(lane));
    return {{"seconds", seconds_},
            {"steps", {lines_.front().step, lines_.back().step}},
            {"lanes", std::move(lanes)},
            {"window", window_json()}};
  }

 private:
  bool add_spans(const json::array& spans, std::size_t lane, Line& line) {
    if (spans.size() > kMostSpansPerLine) return false;
    for (const json::value& value : spans) {
      const json::array* span = value.if_array();
      if (span == nullptr || span->size() != 3 || !span->at(0).is_string()) return false;
      const auto begin = bounded(span->at(1), kLongestLine * 1000);
      const auto length = bounded(span->at(2), kLongestLine * 1000);
      if (!begin || !length) return false;
      const double first = std::min(*begin / 1000, line.seconds);
      line.lanes.at(lane).push_back({phase(lane, span->at(0).get_string()), line.begin + first,
                                     std::min(*length / 1000, line.seconds - first)});
    }
    return true;
  }

  std::size_t phase(std::size_t lane, std::string_view name) {
    std::vector<std::string>& known = phases_.at(lane);
    std::string clipped(name.substr(0, kLongestName));
    const auto found = std::ranges::find(known, clipped);
    if (found != known.end()) return static_cast<std::size_t>(found - known.begin());
    if (known.size() == kMostPhases) return kMostPhases - 1;
    known.push_back(known.size() + 1 == kMostPhases ? "other" : std::move(clipped));
    return known.size() - 1;
  }

  json::object lane_json(std::size_t lane) const {
    const std::vector<std::string>& names = phases_.at(lane);
    std::vector<std::vector<double>> bins(names.size(), std::vector<double>(limits_.bins, 0));
    std::vector<double> seconds(names.size(), 0);
    const double width = seconds_ / static_cast<double>(limits_.bins);
    for (const Line& line : lines_) {
      for (const Span& span : line.lanes.at(lane)) {
        seconds.at(span.phase) += span.seconds;
        add_to_bins(bins.at(span.phase), span, width);
      }
    }
    json::array phases;
    for (std::size_t i = 0; i < names.size(); ++i) {
      json::array shares;
      for (const double bin : bins.at(i)) shares.push_back(std::round(bin / width * 1000) / 1000);
      phases.push_back(
          {{"name", names.at(i)}, {"seconds", seconds.at(i)}, {"bins", std::move(shares)}});
    }
    return {{"name", kLanes.at(lane)}, {"phases", std::move(phases)}};
  }

  void add_to_bins(std::vector<double>& bins, const Span& span, double width) const {
    const double end = span.begin + span.seconds;
    const auto bin_at = [&](double time) {
      return std::min(static_cast<std::size_t>(time / width), limits_.bins - 1);
    };
    for (std::size_t bin = bin_at(span.begin); bin <= bin_at(end); ++bin) {
      const double begin_of_bin = static_cast<double>(bin) * width;
      bins.at(bin) +=
          std::max(0.0, std::min(end, begin_of_bin + width) - std::max(span.begin, begin_of_bin));
    }
  }

  /// The last lines.
  json::object window_json() const {
    std::size_t count = 0;
    double seconds = 0;
    auto first = lines_.end();
    while (first != lines_.begin()) {
      const Line& line = *(first - 1);
      count += line.num_spans();
      if (first != lines_.end() &&
          (count > limits_.spans || seconds + line.seconds > limits_.window_seconds))
        break;
      seconds += line.seconds;
      --first;
    }
    json::array lanes;
    for (std::size_t lane = 0; lane < kLanes.size(); ++lane) {
      json::array spans;
      for (auto line = first; line != lines_.end(); ++line) {
        for (const Span& span : line->lanes.at(lane))
          spans.push_back({span.phase, span.begin - first->begin, span.seconds});
      }
      if (!phases_.at(lane).empty())
        lanes.push_back({{"name", kLanes.at(lane)}, {"spans", std::move(spans)}});
    }
    json::array ends;
    for (auto line = first; line != lines_.end(); ++line)
      ends.push_back({line->step, line->begin + line->seconds - first->begin});
    return {{"seconds", seconds}, {"ends", std::move(ends)}, {"lanes", std::move(lanes)}};
  }

  const TimelineLimits& limits_;
  std::deque<Line> lines_;
  std::array<std::vector<std::string>, kLanes.size()> phases_;
  double seconds_ = 0;
  std::size_t num_spans_ = 0;
};

}  // namespace

json::object timeline_json(const fs::path& path, const TimelineLimits& limits,
                           std::vector<std::string>& problems) {
  if (!fs::exists(path)) return {};
  Reader reader(limits);
  std::size_t num_odd = 0, num_beyond = 0;
  for_each_json_line(path, problems, [&](const json::object& line) {
    if (reader.is_full()) {
      ++num_beyond;
    } else if (!reader.add(line)) {
      ++num_odd;
    }
  });
  if (num_odd > 0)
    problems.push_back(fmt::format("{}: {} lines are not of a timeline", path.string(), num_odd));
  if (num_beyond > 0) {
    problems.push_back(fmt::format("{}: {} lines behind the first {} are left out", path.string(),
                                   num_beyond, reader.num_lines()));
  }
  return reader.to_json();
}

}  // namespace slime::report
