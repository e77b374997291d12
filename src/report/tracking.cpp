#include "report/tracking.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "core/disk_reserve.h"
#include "core/json.h"
#include "core/replace_file.h"
#include "report/metric_row.h"

namespace slime::report {
namespace {

namespace fs = std::filesystem;

std::string read_whole(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Of `before`, the records that stay. Where they are its beginning nothing is written again.
void keep(const fs::path& path, const std::string& before, const std::string& kept) {
  if (kept.size() == before.size()) return;
  if (before.starts_with(kept)) {
    fs::resize_file(path, kept.size());
  } else {
    replace_file(path, kept);
  }
}

/// The run's one event file; a resumed run goes on in the file it finds.
fs::path event_file(const fs::path& folder, double unix_seconds) {
  fs::create_directories(folder);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) return entry.path();
  }
  return folder / fmt::format("events.out.tfevents.{}.slime", static_cast<int64_t>(unix_seconds));
}

fs::path prepared_lines(const fs::path& run_dir, int64_t first_step) {
  fs::create_directories(run_dir);
  fs::path path = run_dir / "metrics.jsonl";
  truncate_metric_lines(path, first_step);
  return path;
}

/// The optimizer updates that the lines tell of; 0: none.
int64_t num_updates(const fs::path& lines) {
  int64_t updates = 0;
  std::ifstream in(lines, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    const auto row = read_metric_row(line);
    const json::value* update = row ? row->if_contains("train/step") : nullptr;
    if (update != nullptr && update->is_number())
      updates = std::max(updates, update->to_number<int64_t>() + 1);
  }
  return updates;
}

fs::path prepared_events(const fs::path& run_dir, int64_t first_step, const Clock& clock) {
  fs::path path = event_file(run_dir / "tensorboard", clock.unix_seconds());
  truncate_event_file(path, first_step, num_updates(run_dir / "metrics.jsonl"));
  return path;
}

}  // namespace

AppendFile::AppendFile(fs::path path)
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0)
    throw std::runtime_error(
        fmt::format("cannot open {}: {}", path_.string(), std::strerror(errno)));
}

AppendFile::~AppendFile() { ::close(descriptor_); }

void AppendFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && says_full(errno) && release_reserve_for(path_)) continue;
    if (written < 0)
      throw std::runtime_error(
          fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno)));
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

Tracker::Tracker(const fs::path& run_dir, int64_t first_step, const Clock& clock,
                 const json::object& settings)
    : clock_(clock),
      lines_(prepared_lines(run_dir, first_step)),
      events_(prepared_events(run_dir, first_step, clock)) {
  const double now = clock_.unix_seconds();
  const std::string version = file_version_record(now);
  if (fs::file_size(events_.path()) == 0) events_.append(version);
  if (!settings.empty() && fs::file_size(events_.path()) == version.size())
    events_.append(hparams_record(now, settings));
}

void Tracker::write(int64_t step, const Metrics& metrics, const StepDetails& details) {
  const double now = clock_.unix_seconds();
  std::string line = fmt::format("{{\"step\": {}, \"time\": {:.3f}", step, now);
  for (const auto& [name, number] : metrics) {
    line += ", " + json_text(json::string(name)) + ": ";
    line += std::isfinite(number) ? fmt::format("{}", number) : "null";
  }
  lines_.append(line + "}\n");
  if (!details.empty()) events_.append(details_record(now, step, details));
  const auto update = metrics.find("train/step");
  if (update == metrics.end()) return events_.append(scalars_record(now, step, metrics));
  // TensorBoard draws an update's numbers over updates, as W&B does.
  Metrics of_update, of_rollout;
  for (const auto& metric : metrics)
    (metric.first.starts_with("train/") ? of_update : of_rollout).insert(metric);
  events_.append(scalars_record(now, static_cast<int64_t>(update->second), of_update));
  if (!of_rollout.empty()) events_.append(scalars_record(now, step, of_rollout));
}

void truncate_metric_lines(const fs::path& path, int64_t first_step) {
  if (!fs::exists(path)) return;
  const std::string text = read_whole(path);
  std::string kept;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line = std::string_view(text).substr(begin, end + 1 - begin);
    const auto row = read_metric_row(line);
    const auto step = row ? step_of_row(*row) : std::nullopt;
    if (!step) break;
    if (*step < first_step) kept += line;
  }
  keep(path, text, kept);
}

void truncate_event_file(const fs::path& path, int64_t first_step, int64_t first_update) {
  if (!fs::exists(path)) return;
  const std::string bytes = read_whole(path);
  std::string kept;
  std::size_t begin = 0;
  while (const auto record = read_event_record(std::string_view(bytes).substr(begin))) {
    // The version record has no step; it stays whatever the run resumes at.
    const int64_t first = record->is_of_update ? first_update : first_step;
    if (begin == 0 || record->step < first)
      kept += std::string_view(bytes).substr(begin, record->size_bytes);
    begin += record->size_bytes;
  }
  keep(path, bytes, kept);
}

std::optional<int64_t> last_evaluated_step(const fs::path& path) {
  std::optional<int64_t> last;
  std::ifstream in(path, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    if (line.find("\"eval/") == std::string::npos) continue;
    const auto row = read_metric_row(line);
    const auto step = row ? step_of_row(*row) : std::nullopt;
    if (step) last = std::max(last.value_or(*step), *step);
  }
  return last;
}

}  // namespace slime::report
