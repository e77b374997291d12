#include "report/run_history.h"

#include <fmt/format.h>

#include <random>
#include <string_view>
#include <system_error>

#include "core/error.h"
#include "report/branch_files.h"
#include "train/checkpoint_directory.h"
#include "train/commit_record.h"

namespace slime::report {

namespace fs = std::filesystem;

namespace {

bool is_filled(const fs::path& file) {
  std::error_code error;
  const auto size = fs::file_size(file, error);
  return !error && size > 0;
}

/// Removes the files of `folder` whose names begin and end so, and the folder if nothing is left.
void remove_files(const fs::path& folder, std::string_view begin, std::string_view end) {
  if (!fs::is_directory(folder)) return;
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(begin) && name.ends_with(end)) files.push_back(entry.path());
  }
  for (const fs::path& file : files) fs::remove(file);
  if (fs::is_empty(folder)) fs::remove(folder);
}

}  // namespace

std::string RunHistory::describe() const {
  std::string text;
  const auto add = [&text](const std::string& what) { text += (text.empty() ? "" : ", ") + what; };
  if (has_metrics) add("metrics");
  if (num_rollouts > 0)
    add(fmt::format("{} rollout file{}", num_rollouts, num_rollouts == 1 ? "" : "s"));
  if (has_ledger) add("a ledger");
  if (!checkpoints.empty())
    add(fmt::format("checkpoints up to {}", train::checkpoint_name(checkpoints.back())));
  if (has_saved && checkpoints.empty()) add("the link `latest` to a checkpoint");
  return text;
}

RunHistory read_history(const RunFolder& folder) {
  RunHistory history;
  history.has_metrics = is_filled(folder.metrics());
  history.has_ledger = is_filled(folder.ledger());
  std::error_code none;  // of a run that has not begun
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.root() / "rollouts", none))
    history.num_rollouts += entry.path().filename().string().starts_with("step_") ? 1 : 0;
  history.has_saved = fs::is_symlink(folder.latest());
  history.checkpoints = train::checkpoint_iterations(folder.checkpoints());
  try {
    if (fs::exists(folder.run_json())) history.run = read_json_file(folder.run_json()).as_object();
  } catch (const std::exception&) {
    // Damaged, or of another program: then nothing is known of that run.
  }
  return history;
}

std::string run_id_of(const json::object& run) {
  const json::value* id = run.if_contains("run_id");
  return id != nullptr && id->is_string() ? std::string(id->get_string()) : "";
}

std::string make_run_id() {
  std::random_device entropy;
  return fmt::format("{:08x}{:08x}", entropy(), entropy());
}

void remove_history(const RunFolder& folder) {
  try {
    const fs::path& root = folder.root();
    fs::remove(folder.latest());  // first, so that it never dangles
    remove_branches(folder.base());
    train::remove_checkpoints(folder.checkpoints());
    train::remove_commit_records(folder.checkpoints());
    for (const char* name : {"metrics.jsonl", "timeline.jsonl", "ledger.jsonl", "trace.json",
                             "report.html", "run.json"})
      fs::remove(root / name);
    remove_files(root / "tensorboard", "events.out.tfevents.", "");
    remove_files(root / "skipped", "", ".jsonl");
    remove_files(root / "rollouts", "step_", ".jsonl");
    if (fs::is_symlink(root / "rollouts") && !fs::exists(root / "rollouts"))
      fs::remove(root / "rollouts");  // to a pool that is gone
    fs::create_directories(root / "rollouts");
  } catch (const fs::filesystem_error& error) {
    throw ConfigError(fmt::format("--overwrite: {}", error.what()));
  }
}

}  // namespace slime::report
