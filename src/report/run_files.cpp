#include "report/run_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>

#include "core/error.h"
#include "report/metric_row.h"

namespace slime::report {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kProblemsPerFile = 3;
constexpr std::size_t kLineLimitBytes = std::size_t{64} << 20;

void add_point(MetricSeries& series, int64_t step, double value) {
  // Lines come in order of steps but for a few stray ones, so the place is at or near the end.
  auto at = series.steps.end();
  while (at != series.steps.begin() && *(at - 1) > step) --at;
  const auto index = at - series.steps.begin();
  if (index > 0 && series.steps[static_cast<std::size_t>(index) - 1] == step) {
    series.values[static_cast<std::size_t>(index) - 1] = value;
    return;
  }
  series.steps.insert(at, step);
  series.values.insert(series.values.begin() + index, value);
}

void thin(MetricSeries& series, std::size_t max_points) {
  const std::size_t count = series.steps.size();
  if (count <= max_points) return;
  MetricSeries kept;
  for (std::size_t i = 1; i <= max_points; ++i) {
    const std::size_t index = i * count / max_points - 1;
    kept.steps.push_back(series.steps[index]);
    kept.values.push_back(series.values[index]);
  }
  series = std::move(kept);
}

/// The last run of digits in a file's name.
std::optional<int64_t> number_in(const std::string& stem) {
  const std::size_t last = stem.find_last_of("0123456789");
  if (last == std::string::npos) return std::nullopt;
  const std::size_t before = stem.find_last_not_of("0123456789", last);
  const std::size_t first = before == std::string::npos ? 0 : before + 1;
  int64_t number = 0;
  const auto result = std::from_chars(stem.data() + first, stem.data() + last + 1, number);
  if (result.ec != std::errc() || number > kLargestStep) return std::nullopt;
  return number;
}

}  // namespace

void for_each_json_line(const fs::path& path, std::vector<std::string>& problems,
                        const std::function<void(const json::object&)>& use) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    problems.push_back(fmt::format("{} cannot be read", path.string()));
    return;
  }
  std::string line;
  std::size_t bad_lines = 0;
  const auto report = [&](int64_t number, std::string_view why) {
    if (++bad_lines <= kProblemsPerFile)
      problems.push_back(fmt::format("{}, line {}: {}", path.string(), number, why));
  };
  for (int64_t number = 1; std::getline(in, line); ++number) {
    if (line.empty()) continue;
    if (line.size() > kLineLimitBytes) {
      report(number, "longer than 64 MiB");
      continue;
    }
    json::error_code error;
    const json::value value = json::parse(line, error);
    if (error) {
      report(number,
             in.eof() ? "incomplete; the run was stopped while it was written" : error.message());
    } else if (!value.is_object()) {
      report(number, "should be a JSON object");
    } else {
      use(value.get_object());
    }
  }
  if (bad_lines > kProblemsPerFile) {
    problems.push_back(
        fmt::format("{}: {} more lines like these", path.string(), bad_lines - kProblemsPerFile));
  }
}

RunMetrics read_metrics(const fs::path& path, std::size_t max_points) {
  RunMetrics metrics;
  if (!fs::exists(path)) {
    metrics.problems.push_back(fmt::format("{} is missing", path.string()));
    return metrics;
  }
  std::size_t without_step = 0;
  for_each_json_line(path, metrics.problems, [&](const json::object& line) {
    const auto step = step_of_row(line);
    if (!step) {
      ++without_step;
      return;
    }
    metrics.num_steps = std::max(metrics.num_steps, *step + 1);
    for (const auto& [name, value] : line) {
      if (name == "step") continue;
      const double number =
          value.is_number() ? value.to_number<double>() : std::numeric_limits<double>::quiet_NaN();
      if (name == "time") {
        if (metrics.first_time == 0) metrics.first_time = number;
        metrics.last_time = number;
        add_point(metrics.times, *step, number);
      } else if (value.is_number() || value.is_null()) {
        add_point(metrics.series[name], *step, number);
      }
    }
  });
  if (without_step > 0) {
    metrics.problems.push_back(
        fmt::format("{}: {} lines have no \"step\" that is a whole number from 0 on", path.string(),
                    without_step));
  }
  for (auto& [name, series] : metrics.series) thin(series, max_points);
  thin(metrics.times, max_points);
  return metrics;
}

std::vector<RolloutFile> rollout_files(const fs::path& folder) {
  std::vector<RolloutFile> files;
  if (!fs::is_directory(folder)) return files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().extension() != ".jsonl") continue;
    const std::optional<int64_t> step = number_in(entry.path().stem().string());
    if (step) files.push_back({entry.path(), *step, entry.file_size()});
  }
  std::ranges::sort(files, {},
                    [](const RolloutFile& file) { return std::pair(file.step, file.path); });
  return files;
}

json::object read_run_record(const fs::path& path, std::vector<std::string>& problems) {
  if (!fs::exists(path)) return {};
  try {
    json::value value = read_json_file(path);
    if (value.is_object()) return std::move(value.get_object());
    problems.push_back(fmt::format("{}: should be a JSON object", path.string()));
  } catch (const ConfigError& error) {
    problems.emplace_back(error.what());
  }
  return {};
}

const json::object* flags_in(const json::object& run) {
  const json::value* flags = run.if_contains("flags");
  return flags != nullptr ? flags->if_object() : nullptr;
}

std::string text_flag(const json::object& run, std::string_view name) {
  const json::object* flags = flags_in(run);
  const json::value* word = flags != nullptr ? flags->if_contains(name) : nullptr;
  return word != nullptr && word->is_string() ? std::string(word->get_string()) : "";
}

}  // namespace slime::report
