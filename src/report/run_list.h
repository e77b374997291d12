#pragma once

/// Runs of a folder with their branches, as their files tell: `slime runs`. Reads only; what cannot be
/// read is left out or named, as of a run that was written by hand.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "report/branch_files.h"

namespace slime::report {

/// A branch and those that begin in it.
struct ListedBranch {
  std::string name;        // "main", or its id
  std::string parent;      // empty for main
  int64_t from = -1;       // the last step that it shares with its parent; -1: not known
  bool is_active = false;  // a start without --load goes on here
  std::string why;         // of a failed run; empty: not known
  std::string state;  // running, finished, interrupted, failed, died, not begun, or of another host
  int64_t last_step = -1;            // with a row of metrics
  int64_t num_steps = 0;             // planned; 0: not known
  std::optional<double> reward;      // mean of the last step that has one; of no supervised run
  std::optional<double> loss;        // of training, of the last step that has one
  double time = 0;                   // unix seconds of the last row of metrics, or of its start
  std::vector<int64_t> checkpoints;  // committed
  std::filesystem::path folder;
  json::object flags;                    // that differ from the defaults
  std::vector<std::string> differences;  // "--lr 1e-06 -> 2e-06": to its parent; of main: to others
  std::vector<ListedBranch> children;
};

struct ListedRun {
  std::filesystem::path folder;
  std::string name;         // relative to the folder that was asked for
  std::string lost_branch;  // the active one, where somebody has deleted it; else empty
  ListedBranch main;
};

/// Each folder where it is of a run, or those below it, at most three folders deep; the newest last. Of several
/// folders the names are paths, and a run that is below two of them is listed once. What differs between runs is
/// found over all of them.
std::vector<ListedRun> list_runs(const std::vector<std::filesystem::path>& folders);

json::array to_json(const std::vector<ListedRun>& runs);

/// "age" (the newest last), "name", "state", "step" or "reward" (the highest last; runs without one first).
/// Throws ConfigError for another word.
void sort_runs(std::vector<ListedRun>& runs, const std::string& key);

/// The value of a flag, for people; null: "(default)".
std::string setting_text(const json::value* value);

/// A table of at most `width` columns. `now`: unix seconds. Settings that differ between runs have columns as far
/// as the width allows, those that most runs set first; the others stand below each run.
std::string table_of_runs(const std::vector<ListedRun>& runs, int width, bool has_color,
                          double now);

}  // namespace slime::report
