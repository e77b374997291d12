#include "loop/run_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "core/error.h"
#include "core/replace_file.h"

namespace slime::loop {

namespace fs = std::filesystem;

namespace {

std::string default_name(const config::ModelFlags& config) {
  fs::path model = fs::path(config.hf_checkpoint).lexically_normal();
  if (model.filename().empty()) model = model.parent_path();
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char stamp[32];
  std::strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", &local);
  return fmt::format("{}-{}", model.filename().string(), stamp);
}

}  // namespace

RunFolder::RunFolder(const config::ModelFlags& config) {
  root_ = !config.run_dir.empty() ? fs::path(config.run_dir)
          : !config.save.empty()  ? fs::path(config.save)
                                  : fs::path("runs") / default_name(config);
  checkpoints_ = config.save.empty() ? root_ / "checkpoints" : fs::path(config.save);
  std::error_code error;
  fs::create_directories(root_ / "rollouts", error);
  if (!error) fs::create_directories(checkpoints_, error);
  if (error)
    throw ConfigError(
        fmt::format("--run-dir {}: cannot be created: {}", root_.string(), error.message()));
  if (access(root_.c_str(), W_OK) != 0)
    throw ConfigError(fmt::format("--run-dir {}: is not writable", root_.string()));
  const char* flag = config.run_dir.empty() && !config.save.empty() ? "--save" : "--run-dir";
  locks_.push_back(std::make_unique<RunLock>(root_, flag));
  if (!fs::equivalent(root_, checkpoints_))
    locks_.push_back(
        std::make_unique<RunLock>(checkpoints_, config.save.empty() ? flag : "--save"));
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

void RunFolder::remove_rollouts_from(int64_t first_step) const {
  for (const auto& [folder, pattern] :
       {std::pair{"rollouts", "step_%ld.jsonl"}, std::pair{"skipped", "%ld.jsonl"}}) {
    if (!fs::is_directory(root_ / folder)) continue;
    for (const fs::directory_entry& entry : fs::directory_iterator(root_ / folder)) {
      int64_t step = -1;
      if (std::sscanf(entry.path().filename().c_str(), pattern, &step) == 1 && step >= first_step)
        fs::remove(entry.path());
    }
  }
}

}  // namespace slime::loop
