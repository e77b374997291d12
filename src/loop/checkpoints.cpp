#include "loop/checkpoints.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/calendar.h"
#include "core/error.h"
#include "train/checkpoint_directory.h"
#include "train/checkpoint_room.h"
#include "train/commit_record.h"
#include "train/run_parts.h"

namespace slime::loop {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMiB = int64_t{1} << 20;

/// New folders for a checkpoint that has no room among the others, on other file systems that have it:
/// in the run's folder, and where only this host can see them among temporary files.
std::vector<fs::path> other_places(const report::RunFolder& folder, uint64_t bytes,
                                   bool may_be_of_host) {
  struct stat full {};
  std::vector<fs::path> places;
  if (::stat(folder.checkpoints().c_str(), &full) != 0) return places;
  const auto has_room = [&](const fs::path& place) {
    struct stat other {};
    std::error_code unknown;
    const fs::space_info space = fs::space(place, unknown);
    return ::stat(place.c_str(), &other) == 0 && other.st_dev != full.st_dev && !unknown &&
           space.available > bytes;
  };
  if (has_room(folder.root())) places.push_back(folder.root() / "rescued");
  std::error_code unknown;
  const fs::path temporary = fs::temp_directory_path(unknown);
  if (may_be_of_host && !unknown && has_room(temporary)) {
    std::string name = (temporary / "slime-checkpoint-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) places.emplace_back(name);
  }
  return places;
}

}  // namespace

Checkpoints::Checkpoints(const config::RunConfig& config, const report::RunFolder& folder,
                         CheckpointOwner owner, RunData& data, GroupSource& source,
                         roles::Trainers& trainers, roles::Engines& engines,
                         report::RunMemory& memory, report::Recorder& recorder)
    : config_(config),
      folder_(folder),
      owner_(std::move(owner)),
      data_(data),
      source_(source),
      trainers_(trainers),
      engines_(engines),
      memory_(memory),
      recorder_(recorder) {}

json::object Checkpoints::state_now(int64_t step) {
  OpenGroups open = source_.open_groups();
  const std::vector<Group> waiting = open.all();
  data_.origin->save(step);
  json::object state = data_state(step, data_.prompts(), *data_.outcomes, std::move(open));
  data_.origin->add_open_groups(state, waiting);
  return state;
}

void Checkpoints::save(int64_t step, bool is_published, std::optional<StepBoundary> boundary) {
  const auto range = recorder_.phase("save");
  recorder_.sync();  // a checkpoint is not ahead of the metrics of its steps
  json::object run =
      boundary ? data_state(step, *std::move(boundary), *data_.outcomes) : state_now(step);
  run["started"] = to_date_text(owner_.started);
  run["weight_version"] = engines_.weight_version().value_or(step + 1);
  run["is_published"] = is_published;
  run["run_id"] = owner_.run_id;
  run["queue_run_id"] = config_.rollout_queue_run_id.get();
  run["settings"] = owner_.settings;
  run["epoch"] = owner_.epoch;
  for (const train::PartRow& row : train::run_parts()) {
    // The trainer's counters are with its tensors.
    const bool is_of_trainer =
        row.part == train::RunPart::kSchedule || row.part == train::RunPart::kCounters;
    if (*row.folder != '\0' || is_of_trainer || row.may_be_missing) continue;
    for (const std::string_view member : row.stems)
      check(run.contains(member), "a part is saved as its row says");
  }
  const fs::path directory = write(step, run);
  // In this order `latest` names a checkpoint that is there, whenever the process dies.
  folder_.set_latest(directory);
  record(step, run);
  train::remove_old_checkpoints(folder_.checkpoints(), config_.keep_checkpoints, directory);
  train::remove_commit_records(folder_.checkpoints());
  if (config_.rollout_queue_online_gc && config_.rollout_data_transport == "straw")
    collect_garbage();
  recorder_.saved(step);
  memory_.set_last_checkpoint(step);
}

/// The checkpoint is whole without it: a disk that does not take it ends no run.
void Checkpoints::record(int64_t step, const json::object& run) {
  try {
    train::write_commit_record(
        folder_.checkpoints(), step,
        {{"resumable", true},
         {"weight_version", run.at("weight_version")},
         {"rollout_data_dir",
          fs::absolute(folder_.root() / "rollouts").lexically_normal().string()},
         {"run_id", config_.rollout_queue_run_id.get()}});
  } catch (const ConfigError& error) {
    recorder_.message(error.what());
  }
}

void Checkpoints::collect_garbage() {
  const std::vector<int64_t> steps = train::committed_iterations(folder_.checkpoints());
  const fs::path oldest = folder_.checkpoints() / train::checkpoint_name(steps.front());
  try {
    const json::value run = read_json_file(oldest / "run.json");
    const int64_t position = run.at("run").at("ledger").to_number<int64_t>();
    data_.outcomes->collect(position, config_.rollout_queue_segment_mib.value_or(0) * kMiB);
    folder_.remove_rollouts_before(steps.front());
  } catch (const std::exception& error) {
    recorder_.message(
        fmt::format("--rollout-queue-online-gc: nothing was collected: {}", error.what()));
  }
}

fs::path Checkpoints::write_to(const fs::path& root, int64_t step, const json::object& run) {
  return trainers_.save({.root = root,
                         .model_source = config_.hf_checkpoint,
                         .save_optimizer = !config_.no_save_optim},
                        step, run);
}

bool Checkpoints::make_room(uint64_t missing_bytes) {
  if (config_.keep_checkpoints == 0) return false;  // all are to stay
  const fs::path& root = folder_.checkpoints();
  const auto removed = train::make_room_for_checkpoint(root, missing_bytes);
  if (!removed.empty())
    recorder_.message(fmt::format("{}: the disk is full; {} removed for the next checkpoint",
                                  root.string(), fmt::join(removed, ", ")));
  return !removed.empty();
}

/// Ranks write a checkpoint together, and cannot begin again when it broke off: for them the room is
/// looked at before. A process alone tries, since quotas are no file system's word.
fs::path Checkpoints::write(int64_t step, const json::object& run) {
  const fs::path& root = folder_.checkpoints();
  const bool is_alone = config_.world_size() == 1;
  const uint64_t expected = train::expected_checkpoint_bytes(root);
  const uint64_t missing = is_alone ? 0 : train::missing_checkpoint_bytes(root);
  if (missing > 0 && !make_room(missing)) write_elsewhere(step, run, "the disk is full");
  for (;;) {  // each time with fewer of the old ones
    try {
      return write_to(root, step, run);
    } catch (const train::DiskFull& full) {
      if (!is_alone) throw;
      const bool is_helped = expected > 0 && make_room(train::missing_checkpoint_bytes(
                                                 expected, full.written_bytes()));
      if (!is_helped) write_elsewhere(step, run, full.what());
    }
  }
}

void Checkpoints::write_elsewhere(int64_t step, const json::object& run, const std::string& why) {
  const fs::path& root = folder_.checkpoints();
  const bool is_one_host = config_.actor_num_nodes == 1;
  const std::vector<fs::path> places =
      other_places(folder_, train::expected_checkpoint_bytes(root), is_one_host);
  for (const fs::path& place : places) {
    std::string written;
    try {
      written = write_to(place, step, run).string();
    } catch (const std::exception& error) {
      recorder_.message(fmt::format("{}: {}", place.string(), error.what()));
      std::error_code ignored;
      fs::remove_all(place, ignored);
      if (config_.world_size() > 1) break;
    }
    if (written.empty()) continue;
    for (const fs::path& unused : places) {
      std::error_code not_empty;
      fs::remove(unused, not_empty);
    }
    throw ConfigError(fmt::format(
        "{}\nThe checkpoint of rollout step {} is whole in {}: free some space, move it into {}, "
        "and the same command goes on after it",
        why, step, written, root.string()));
  }
  const std::vector<int64_t> others = train::committed_iterations(root);
  throw ConfigError(fmt::format("{}\nLost: what was trained {}", why,
                                others.empty()
                                    ? std::string("so far, there is no checkpoint")
                                    : fmt::format("after rollout step {}", others.back())));
}

}  // namespace slime::loop
