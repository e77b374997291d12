#pragma once

/// The checkpoints of a run: which one it goes on from, and those it leaves (train/checkpoint.h has
/// their form). A checkpoint commits weights, the position in the data and the ledger together.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "config/run_config.h"
#include "loop/data_state.h"
#include "loop/group_source.h"
#include "loop/run_data.h"
#include "loop/step_boundary.h"
#include "report/recorder.h"
#include "report/run_folder.h"
#include "report/run_memory.h"
#include "roles/engines.h"
#include "roles/trainers.h"

namespace slime::loop {

/// What tells a run's checkpoints from those of others, and one from the other.
struct CheckpointOwner {
  std::string run_id;
  std::chrono::local_days started;  // the day that chat templates show
  int64_t epoch = 0;                // of the trainers (cluster/run_identity.h)
  json::object settings = {};       // settings_of() (loop/changed_settings.h)
};

/// One class because all of these stand still for one moment, of which a checkpoint is.
class Checkpoints {
 public:
  /// References outlive the object.
  Checkpoints(const config::RunConfig& config, const report::RunFolder& folder,
              CheckpointOwner owner, RunData& data, GroupSource& source, roles::Trainers& trainers,
              roles::Engines& engines, report::RunMemory& memory, report::Recorder& recorder);

  /// After rollout step `step`. `is_published`: the engines have the weights that are saved. Throws
  /// ConfigError when the disk is full and older checkpoints cannot make room: it says where the
  /// checkpoint is instead, or what is lost.
  void save(int64_t step, bool is_published) { save(step, is_published, std::nullopt); }
  /// The same as the data stood at `boundary`, behind that step: the one that followed was abandoned.
  void save(int64_t step, bool is_published, std::optional<StepBoundary> boundary);

 private:
  /// The part that is not weights, of one moment.
  json::object state_now(int64_t step);
  /// Writes it among the others. On a full disk older ones make room, or it goes to another place and a
  /// ConfigError says where; nothing is lost in silence.
  std::filesystem::path write(int64_t step, const json::object& run);
  void record(int64_t step, const json::object& run);
  /// --rollout-queue-online-gc: deletes what no checkpoint needs.
  void collect_garbage();
  std::filesystem::path write_to(const std::filesystem::path& root, int64_t step,
                                 const json::object& run);
  bool make_room(uint64_t missing_bytes);
  [[noreturn]] void write_elsewhere(int64_t step, const json::object& run, const std::string& why);

  const config::RunConfig& config_;
  const report::RunFolder& folder_;
  const CheckpointOwner owner_;
  RunData& data_;
  GroupSource& source_;
  roles::Trainers& trainers_;
  roles::Engines& engines_;
  report::RunMemory& memory_;
  report::Recorder& recorder_;
};

}  // namespace slime::loop
