#pragma once

/// Catalog of the runs that a page shows: those found below the folders of the command, each with a name
/// for URLs. Only a name that is in the catalog leads to a folder, so no request names a path.

#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace slime::view {

/// One class because several threads look at one list, which is made again when it is old.
class RunCatalog {
 public:
  /// Run folders, or folders with runs at most three folders below. Throws ConfigError for one that is
  /// not there. `waits`: of a run that has not begun, whose folder alone is there.
  explicit RunCatalog(std::vector<std::filesystem::path> folders, bool waits = false);

  /// [{"id": "a", "folder": ..., "state": "running", "flags": {...}, ...}, ...]; as report/run_list.h
  /// tells, at most kMostRuns, the newest last.
  json::array list();
  /// Nothing for a name that is not in the catalog.
  std::optional<std::filesystem::path> folder_of(std::string_view id);

  static constexpr std::size_t kMostRuns = 500;

 private:
  using Time = std::chrono::steady_clock::time_point;

  void refresh();  // under mutex_
  void add(const json::object& branch, const std::string& name);

  const std::vector<std::filesystem::path> folders_;
  const bool waits_;
  std::mutex mutex_;
  // Guarded by mutex_.
  json::array list_;
  std::map<std::string, std::filesystem::path, std::less<>> paths_;
  Time due_{};
};

}  // namespace slime::view
