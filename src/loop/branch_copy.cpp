#include "loop/branch_copy.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "buffer/ledger_file.h"
#include "core/error.h"
#include "core/json.h"
#include "core/replace_file.h"
#include "report/tracking.h"
#include "train/checkpoint_directory.h"
#include "train/commit_record.h"

namespace slime::loop {
namespace {

namespace fs = std::filesystem;

void link_or_copy(const fs::path& from, const fs::path& to) {
  std::error_code no_links;
  fs::create_hard_link(from, to, no_links);
  if (no_links) {
    fs::copy_file(from, to, fs::copy_options::overwrite_existing);
    sync_path(to);
  }
}

void link_tree(const fs::path& from, const fs::path& to) {
  fs::create_directories(to);
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    const fs::path target = to / entry.path().filename();
    if (entry.is_directory()) {
      link_tree(entry.path(), target);
    } else {
      link_or_copy(entry.path(), target);
    }
  }
  sync_path(to);
}

/// Files of rollouts up to `step`, which are replaced and never changed.
void link_rollouts(const fs::path& from, const fs::path& to, const char* pattern, int64_t step) {
  if (!fs::is_directory(from)) return;
  fs::create_directories(to);
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    long of_step = -1;
    if (std::sscanf(entry.path().filename().c_str(), pattern, &of_step) == 1 && of_step <= step)
      link_or_copy(entry.path(), to / entry.path().filename());
  }
}

void copy_if_there(const fs::path& from, const fs::path& to) {
  if (!fs::exists(from)) return;
  fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
}

/// What users' data sources saved; the records of checkpoints and branches are each branch's own.
void copy_users_state(const fs::path& from, const fs::path& to) {
  fs::create_directories(to);
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(from, none)) {
    const std::string name = entry.path().filename().string();
    const bool is_ours = name == "current.json" || name == "branch.json" || name.starts_with('.') ||
                         train::iteration_of_record(entry.path()).has_value();
    if (!is_ours) copy_if_there(entry.path(), to / entry.path().filename());
  }
}

}  // namespace

void copy_branch(const report::BranchPlace& from, const report::BranchPlace& to, int64_t step) {
  try {
    const std::string checkpoint = train::checkpoint_name(step);
    copy_users_state(train::rollout_folder(from.checkpoints),
                     train::rollout_folder(to.checkpoints));
    link_tree(from.checkpoints / checkpoint, to.checkpoints / checkpoint);
    const fs::path record = train::commit_record(from.checkpoints, step);
    if (fs::exists(record)) link_or_copy(record, train::commit_record(to.checkpoints, step));
    train::set_tracked_iteration(to.checkpoints, step);
    const json::value run = read_json_file(to.checkpoints / checkpoint / "run.json");
    buffer::copy_ledger(from.root / "ledger.jsonl", to.root / "ledger.jsonl",
                        run.at("run").at("ledger").to_number<int64_t>());
    // The run that goes on cuts them behind the step.
    for (const char* name : {"run.json", "metrics.jsonl", "tensorboard"})
      copy_if_there(from.root / name, to.root / name);
    link_rollouts(from.root / "rollouts", to.root / "rollouts", "step_%ld.jsonl", step);
    link_rollouts(from.root / "skipped", to.root / "skipped", "%ld.jsonl", step);
    fs::create_directories(to.root / "rollouts");
    for (const char* name : {"run.json", "metrics.jsonl"}) sync_path(to.root / name);
    sync_path(to.root);
    sync_path(to.checkpoints);
  } catch (const std::system_error& error) {
    throw ConfigError(fmt::format("a branch cannot be made: {}", error.what()));
  }
}

}  // namespace slime::loop
