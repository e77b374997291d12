#include "report/run_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <functional>
#include <string_view>

#include "core/disk_reserve.h"
#include "core/error.h"
#include "core/model_title.h"
#include "core/replace_file.h"
#include "text/unicode/unicode.h"

namespace slime::report {

namespace fs = std::filesystem;

namespace {

std::string default_name(const config::ModelFlags& config) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char stamp[32];
  std::strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", &local);
  return fmt::format("{}-{}", model_title(config.hf_checkpoint.get()), stamp);
}

/// Names that a run writes into its folder or into that of its checkpoints. One of `kProofs` alone
/// shows that a run was here: other programs have folders "rollouts" and links "latest", too.
constexpr std::array<std::string_view, 4> kProofs{"lock", "run.json", "ledger.jsonl",
                                                  "metrics.jsonl"};
constexpr std::array<std::string_view, 12> kOurs{
    "rollouts", "checkpoints", "latest",      "skipped",    "tensorboard",
    "workers",  "trace.json",  "report.html", "latest.new", "latest_checkpointed_iteration.txt",
    "rollout",  "branches"};
constexpr std::size_t kShownNames = 3;

/// What file systems, shells and people's scripts (... | tee DIR/train.log) put everywhere.
bool counts_for_nothing(const std::string& name) {
  return name.starts_with('.') || name.ends_with(".log") || name == "lost+found";
}

/// Checkpoints are removed by age and by --overwrite: they never lie among other things. Throws
/// ConfigError when there is something in `folder`, and nothing of a run.
void refuse_others_things(const fs::path& folder) {
  std::error_code error;
  std::vector<std::string> others;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (std::ranges::find(kProofs, name) != kProofs.end()) return;
    std::error_code ignored;
    if (fs::exists(entry->path() / "COMMITTED", ignored)) return;
    if (counts_for_nothing(name) || std::ranges::find(kOurs, name) != kOurs.end()) continue;
    others.push_back(name);
  }
  if (others.empty()) return;
  std::ranges::sort(others);
  const std::size_t shown = std::min(others.size(), kShownNames);
  const std::size_t more = others.size() - shown;
  throw ConfigError(fmt::format(
      "--save {}: holds {}{}, and nothing of a run; give a folder that is empty, that a run has "
      "saved to, or that is not there yet, such as --save {}",
      folder.string(), fmt::join(others.begin(), others.begin() + shown, ", "),
      more == 0 ? "" : fmt::format(" and {} more", more), (folder / "slime").string()));
}

}  // namespace

RunFolder RunFolder::only_named(const config::ModelFlags& config) {
  RunFolder folder;
  folder.root_ = !config.run_dir.empty() ? fs::path(config.run_dir)
                 : !config.save.empty()  ? fs::path(config.save)
                                         : fs::path("runs") / default_name(config);
  folder.checkpoints_ = config.save.empty() ? folder.root_ / "checkpoints" : fs::path(config.save);
  folder.base_ = {folder.root_, folder.checkpoints_};
  return folder;
}

void RunFolder::go_to_branch(const std::string& name) {
  const BranchPlace place = place_of_branch(base_, name);
  branch_ = name;
  root_ = place.root;
  checkpoints_ = place.checkpoints;
  if (reserve_) reserve_ = std::make_unique<Reserve>(root_);  // beside what is written
}

std::string RunFolder::title() const {
  const std::string name = base_.root.filename().string();
  return branch_ == kMainBranch ? name : fmt::format("{}, branch {}", name, branch_);
}

RunFolder::RunFolder(const config::ModelFlags& config) : RunFolder(only_named(config)) {
  if (!config.save.empty()) refuse_others_things(checkpoints_);
  const char* flag = config.run_dir.empty() && !config.save.empty() ? "--save" : "--run-dir";
  if (!config.overwrite) check_pool();
  std::error_code error;
  const auto require_made = [&error](const char* whose, const fs::path& folder) {
    if (error)
      throw ConfigError(
          fmt::format("{} {}: cannot be created: {}", whose, folder.string(), error.message()));
  };
  made_ = std::make_unique<MadeFolders>(base_.root / "run.json");
  made_->make(root_, error);
  if (!error && !fs::is_symlink(root_ / "rollouts")) made_->make(root_ / "rollouts", error);
  require_made(flag, root_);
  made_->make(checkpoints_, error);
  require_made(config.save.empty() ? flag : "--save", checkpoints_);
  if (access(root_.c_str(), W_OK) != 0)
    throw ConfigError(fmt::format("{} {}: is not writable", flag, root_.string()));
  locks_.push_back(std::make_unique<RunLock>(root_, flag));
  if (!fs::equivalent(root_, checkpoints_))
    locks_.push_back(
        std::make_unique<RunLock>(checkpoints_, config.save.empty() ? flag : "--save"));
  reserve_ = std::make_unique<Reserve>(root_);
}

RunFolder::Reserve::Reserve(fs::path where)
    : folder(std::move(where)), is_kept(keep_reserve(folder)) {}

RunFolder::Reserve::~Reserve() { remove_reserve(folder); }

void RunFolder::check_reserve() const {
  if (!reserve_ || !reserve_->is_kept || has_reserve(root_)) return;
  throw ConfigError(fmt::format(
      "{}: the disk is full; metrics and ledger are whole, with the space that was kept for them. "
      "Free some space, or give --save and --run-dir on another disk",
      root_.string()));
}

bool RunFolder::is_locked() const {
  return std::ranges::all_of(locks_, [](const auto& lock) { return lock->keeps_others_out(); });
}

fs::path RunFolder::rollouts(int64_t step) const {
  return root_ / "rollouts" / fmt::format("step_{:06}.jsonl", step);
}

fs::path RunFolder::skipped(int64_t step) const {
  return root_ / "skipped" / fmt::format("{}.jsonl", step);
}

void RunFolder::set_latest(const fs::path& checkpoint) const {
  const fs::path temporary = root_ / "latest.new";
  std::error_code error;
  fs::remove(temporary, error);
  const fs::path relative = fs::proximate(checkpoint, root_, error);
  fs::create_directory_symlink(error ? checkpoint : relative, temporary, error);
  if (!error) fs::rename(temporary, latest(), error);
  if (error)
    throw ConfigError(fmt::format("{}: cannot be written: {}", latest().string(), error.message()));
}

void RunFolder::write_run_json(const json::object& run) const {
  replace_file(run_json(), to_pretty_json(run));
}

void RunFolder::note_end(std::string_view how, std::string_view why) const {
  try {
    json::value run = read_json_file(run_json());
    if (!run.is_object()) return;
    json::object end{{"how", how}, {"time", std::time(nullptr)}};
    constexpr std::size_t kLongest = 2000;
    if (!why.empty()) end["why"] = text::to_valid_utf8(why.substr(0, kLongest));
    run.get_object()["ended"] = std::move(end);
    write_run_json(run.get_object());
  } catch (const std::exception&) {
    // A note for `slime runs`: what ended the run is said elsewhere.
  }
}

namespace {

/// Rollout files, skipped ones too, whose step is one of `which`.
void remove_rollouts_of(const fs::path& root, const std::function<bool(int64_t)>& which) {
  for (const auto& [folder, pattern] :
       {std::pair{"rollouts", "step_%ld.jsonl"}, std::pair{"skipped", "%ld.jsonl"}}) {
    if (!fs::is_directory(root / folder)) continue;
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(root / folder)) {
      int64_t step = -1;
      if (std::sscanf(entry.path().filename().c_str(), pattern, &step) == 1 && which(step))
        files.push_back(entry.path());
    }
    for (const fs::path& file : files) fs::remove(file);
  }
}

}  // namespace

void RunFolder::remove_rollouts_from(int64_t first_step) const {
  remove_rollouts_of(root_, [=](int64_t step) { return step >= first_step; });
}

void RunFolder::remove_rollouts_before(int64_t step) const {
  remove_rollouts_of(root_, [=](int64_t of_file) { return of_file < step; });
}

void RunFolder::check_pool() const {
  const fs::path link = root_ / "rollouts";
  std::error_code error;
  if (!fs::is_symlink(link) || fs::is_directory(link, error)) return;
  const std::string pool = fs::read_symlink(link, error).string();
  throw ConfigError(
      fmt::format("{}: leads to {} (--rollout-data-dir), which is not there: bring it back, or "
                  "mkdir -p {} to go on without the files of earlier rollouts, which slime dump, "
                  "replay and report read",
                  link.string(), pool, pool));
}

void RunFolder::keep_rollouts_in(const fs::path& pool, const std::string& run_id) const {
  const fs::path link = root_ / "rollouts";
  std::error_code error;
  const fs::path target = fs::absolute(pool, error).lexically_normal() / run_id / branch_;
  if (fs::is_symlink(link)) {
    if (fs::read_symlink(link, error) == target) return;
    throw ConfigError(fmt::format(
        "--rollout-data-dir {}: the rollouts of this run are in {}; give that folder, or "
        "move them and {}",
        pool.string(), fs::read_symlink(link, error).string(), link.string()));
  }
  fs::create_directories(target, error);
  if (!error) {
    for (const fs::directory_entry& entry : fs::directory_iterator(link, error)) {
      const fs::path moved = target / entry.path().filename();
      fs::copy_file(entry.path(), moved, fs::copy_options::overwrite_existing, error);
      if (error) break;
    }
  }
  if (!error) fs::remove_all(link, error);
  if (!error) fs::create_directory_symlink(target, link, error);
  if (error) {
    throw ConfigError(fmt::format("--rollout-data-dir {}: {} cannot lie there: {}", pool.string(),
                                  link.string(), error.message()));
  }
}

}  // namespace slime::report
