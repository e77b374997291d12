#include "view/run_catalog.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/folder_name.h"
#include "report/run_list.h"

namespace slime::view {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

constexpr std::chrono::seconds kFresh{3};
/// Of the time a refresh takes: the share of it in all time stays below 1 in so many.
constexpr int kRest = 20;

/// In a URL's fragment and in queries, without escapes.
std::string id_of(const std::string& name) {
  std::string id;
  for (const char c : name) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-' || c == '/';
    id += is_plain ? c : '_';
  }
  return id.empty() ? "run" : id;
}

}  // namespace

RunCatalog::RunCatalog(std::vector<fs::path> folders, bool waits)
    : folders_(std::move(folders)), waits_(waits) {
  for (const fs::path& folder : folders_) {
    if (!fs::is_directory(folder))
      throw ConfigError(
          fmt::format("{}: there is no such folder; give a run directory such as runs/NAME, or a "
                      "folder of several",
                      folder.string()));
  }
  const std::lock_guard lock(mutex_);
  refresh();
  if (list_.empty() && !waits_)
    throw ConfigError(fmt::format("{}: holds no run (a folder with run.json or metrics.jsonl)",
                                  folders_.empty() ? "." : folders_.front().string()));
}

void RunCatalog::add(const json::object& branch, const std::string& name) {
  if (list_.size() >= kMostRuns) return;
  std::string id = id_of(name);
  for (int i = 2; paths_.contains(id); ++i) id = fmt::format("{}~{}", id_of(name), i);
  const fs::path folder(std::string(branch.at("folder").as_string()));
  json::object entry = branch;
  entry["id"] = id;
  entry["name"] = name;
  entry.erase("branches");
  paths_.emplace(std::move(id), folder);
  list_.push_back(std::move(entry));
  for (const json::value& child : branch.at("branches").as_array()) {
    const json::object& below = child.as_object();
    add(below, fmt::format("{}/{}", name, std::string_view(below.at("branch").as_string())));
  }
}

void RunCatalog::refresh() {
  if (steady_clock::now() < due_) return;
  const Time begin = steady_clock::now();
  list_.clear();
  paths_.clear();
  for (const fs::path& folder : folders_) {
    std::vector<report::ListedRun> runs = report::list_runs({folder});
    // The newest are last, and stay where there are too many.
    if (runs.size() > kMostRuns)
      runs.erase(runs.begin(), runs.end() - static_cast<std::ptrdiff_t>(kMostRuns));
    for (const json::value& run : report::to_json(runs)) {
      const json::object& record = run.as_object();
      add(record, std::string(record.at("run").as_string()));
    }
    // Written by hand, or by something else: metrics alone.
    const bool has_more = fs::exists(folder / "metrics.jsonl") || fs::exists(folder / "rollouts");
    if (runs.empty() && (waits_ || has_more)) {
      add({{"folder", folder.string()},
           {"state", ""},
           {"flags", json::object()},
           {"last_step", -1},
           {"num_steps", 0},
           {"branches", json::array()}},
          folder_name(folder));
    }
  }
  due_ = begin + std::max<steady_clock::duration>(kFresh, (steady_clock::now() - begin) * kRest);
}

json::array RunCatalog::list() {
  const std::lock_guard lock(mutex_);
  refresh();
  return list_;
}

std::optional<fs::path> RunCatalog::folder_of(std::string_view id) {
  const std::lock_guard lock(mutex_);
  refresh();
  const auto found = paths_.find(id);
  if (found == paths_.end()) return std::nullopt;
  return found->second;
}

}  // namespace slime::view
