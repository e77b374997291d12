#pragma once

/// The engines of a session, as its trainer has them: those that an earlier trainer left, and those that
/// it starts itself (docs/decisions/0138-engines-outlive-trainers.md).

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cluster/launcher.h"
#include "core/json.h"
#include "core/sample.h"
#include "report/run_lock.h"
#include "roles/engine_process.h"
#include "roles/session_folder.h"
#include "roles/session_frames.h"

namespace slime::roles {

struct KeptEnginesConfig {
  std::string id;                // --rollout-session-id
  int count = 0;                 // engines; 0: none has a process of its own
  double patience_minutes = 60;  // without a trainer
  double end_seconds = 60;       // to end with the run
};

/// An engine that was asked, before a RemoteEngine has its connection.
struct KeptEngineConnection {
  int descriptor = -1;
  KeptEngineState state;
};

/// One class because who may have the engines, which live, and what becomes of them at the end are one
/// question: whose they are.
class KeptEngines final {
 public:
  /// Locks the session; a record whose engines have all ended is forgotten, with the steps beside it. Throws
  /// ConfigError when another trainer has them.
  explicit KeptEngines(KeptEnginesConfig config);
  /// The engines wait for another trainer, or end (note_ready, end_with_run).
  ~KeptEngines();
  KeptEngines(const KeptEngines&) = delete;
  KeptEngines& operator=(const KeptEngines&) = delete;

  /// What an earlier trainer left; nothing: the session begins.
  const std::optional<SessionRecord>& left() const { return left_; }
  /// Engines of it live; without them there are steps alone, which may be forgotten.
  bool has_engines() const { return has_engines_; }
  void forget_left();
  /// The session is this trainer's: `settings` and the folder of unsaved steps of a session that begins;
  /// one that goes on keeps its own. Throws ConfigError when its engines are of another program.
  void take(const json::object& settings, const std::filesystem::path& unsaved);
  /// Where steps are kept that no checkpoint has.
  const std::filesystem::path& unsaved() const { return unsaved_; }

  /// Connects to the engines that live. What they are, for people; empty: none does.
  std::string attach();
  /// What the weights are called with which this trainer begins, if `wanted` is their number in its
  /// checkpoint: above all numbers that other weights have had in these engines. `checksum` of them.
  WeightVersion version_of(WeightVersion wanted, const std::function<uint64_t()>& checksum);

  /// An engine's process, which lives or is started. The session outlives it. Any thread.
  std::unique_ptr<EngineProcess> process(const cluster::WorkerOrder& order, int index);

  /// All engines serve: from here on they outlive this trainer. Before, those that it started do not:
  /// a command that they cannot begin with is not given again.
  void note_ready() { is_ready_ = true; }
  void end_with_run() { ends_ = true; }

 private:
  friend class KeptEngineProcess;
  bool has_attached(int index);
  /// Of an engine that lives, or that is started now; the connection, and whether it has the weights.
  KeptEngineConnection connect(const cluster::WorkerOrder& order, const EngineStart& start,
                               std::chrono::milliseconds limit);
  void note_process(int index, int64_t process);

  const KeptEnginesConfig config_;
  const std::filesystem::path folder_;
  std::unique_ptr<report::RunLock> lock_;
  std::optional<SessionRecord> left_;
  bool has_engines_ = false;  // of it, which live
  std::filesystem::path unsaved_;
  std::mutex mutex_;
  SessionRecord record_;                                       // guarded by mutex_
  std::vector<std::optional<KeptEngineConnection>> attached_;  // guarded by mutex_; by index
  bool has_weights_ = false;  // those that were attached have the published ones
  bool is_ready_ = false;
  bool ends_ = false;
};

}  // namespace slime::roles
