#pragma once

/// Tasks from the controller to the ranks of a run. To a rank in another process it goes as a frame
/// (cluster/worker_frames.h) whose first letter is the kind.

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/parallel_layout.h"
#include "config/run_config.h"
#include "core/json.h"
#include "core/weight_checksums.h"
#include "kernels/matrix.h"
#include "report/run_memory.h"
#include "train/checkpoint.h"
#include "train/share.h"

namespace slime::roles {

/// Ranks of one run find one another within this time, or the run ends.
inline constexpr std::chrono::seconds kRankConnectTimeout{60};

enum class RankTask : char {
  kStart = 's',  // RankStart as JSON; the answer: it is there; of rank 0: the port where it listens
  kMeet = 'm',   // address and port; the answer, once it can train: RankReady as JSON
  kEngine = 'e',  // EngineStart as JSON; the answer, once it can be served: EngineReady as JSON; of
                  // a rank that leads no engine: nothing
  kFollow = 'f',  // EngineRankStart as JSON: a further rank of an engine; no answer
  kTrain =
      't',  // train::BatchShare; the answer: log-probs of its samples, of rank 0 train::TrainReport
  kPublished = 'p',   // the engines have got the new weights; no answer
  kSave = 'c',        // SaveTask as JSON: rank 0 saves, and answers with the directory
  kGather = 'g',      // rank 0 answers with the weights of all, in pieces, then an empty answer;
                      // of a format's matrices with codes and factors (model/stored_parts.h)
  kBring = 'w',       // the weights of all to the engines over the ranks; an empty answer
  kChecksums = 'k',   // rank 0 answers with the checksums of the weights of all
  kRelease = 'r',     // give back what is held for training alone; an empty answer
  kBeginPhase = 'b',  // peaks of memory count from here on; no answer
  kMemory = 'y',      // the answer: report::MemoryMeasured as JSON
};

/// A checkpoint to be written (train/checkpoint.h).
struct SaveTask {
  train::CheckpointConfig config;
  int64_t iteration = 0;
  json::object run = {};
};

/// What a trainer role is told.
struct TrainerTask {
  RankTask kind;
  train::BatchShare share = {};  // of kTrain
  std::string address = {};      // of kMeet: rank 0's host
  int port = 0;                  // of kMeet: where rank 0 listens there
  SaveTask save = {};            // of kSave
  /// Of kGather and kChecksums: of the engines' networks.
  kernels::MatrixFormat matrices = kernels::MatrixFormat::kPlain;
};

std::string to_frame(const TrainerTask& task);
/// Throws BugError for bytes that are no task.
TrainerTask trainer_task_from(std::string_view frame);

/// All a process needs to become a rank of a run: the resolved configuration, which also says how
/// many ranks there are, and what the controller found out with it.
struct RankStart {
  config::RunConfig config;
  int rank = 0;
  std::string address = "127.0.0.1";    // of the rank's host, IPv4, under which others reach it
  int64_t collective_milliseconds = 0;  // deadline of each collective
  int64_t num_rollouts = 0;             // planned length of the run
  int64_t first_rollout = 0;            // where it begins
  std::string plugin_logs;              // folder for what users' functions write
  int num_threads = 0;
  int64_t longest_prompt = 0;  // tokens; 0: not known
  std::string weights;         // model directory, or checkpoint, that the actor's weights come from
  std::string adapter;         // directory that its adapter comes from; empty: none, or a fresh one
  std::string checkpoint;      // directory that other parts come from; empty: none
  int64_t iteration = 0;       // of the checkpoint
  uint32_t left_out = 0;       // of the checkpoint (train::LeavesOut)
  std::string checkpoints;     // the run's folder of them, named when memory runs out
  int64_t last_checkpoint = -1;  // the newest there; -1: none
};

std::string to_frame(const RankStart& start);
/// Of the frame of a RankStart. Throws ConfigError for another.
RankStart rank_start_from(std::string_view frame);

/// What a rank says when it can train.
struct RankReady {
  std::vector<std::string> notes;  // what there is to tell
  json::object memory;             // of rank 0: its plan (estimate/memory_plan.h)
};

std::string to_text(const RankReady& ready);
/// Throws ConfigError for a text of another form.
RankReady rank_ready_from(std::string_view text);

std::string to_text(const report::MemoryMeasured& measured);
/// Throws ConfigError for a text of another form.
report::MemoryMeasured memory_measured_from(std::string_view text);

/// All a process needs to become an engine beside the trainer: it gets its weights over its
/// connection (engine/remote). A rank that is told this has the weights (roles/rank_engines.h).
struct EngineStart {
  config::RunConfig config;
  int64_t longest_prompt = 0;  // tokens; 0: not known
  int64_t kv_cache_bytes = 0;  // of a rank's engine; another plans its own memory
  int num_threads = 0;         // of each of the engine's ranks
  int index = 0;               // of the engine in the run
  std::string log_folder;      // for what its further ranks print
};

std::string to_frame(const EngineStart& start);
bool is_engine_start(std::string_view frame);
/// Of the frame of an EngineStart. Throws ConfigError for another.
EngineStart engine_start_from(std::string_view frame);

/// All a process needs to become a further rank of an engine (engine/ranks), whose first rank starts it.
struct EngineRankStart {
  std::string directory;  // of the model
  std::string device;     // as --device
  std::string dtype;
  bool loads_weights = false;  // of the directory; otherwise they are sent
  /// Of a run that trains adapters, which are what is sent.
  std::optional<config::RunConfig> trains_adapters = std::nullopt;
  bool has_codes = false;        // EngineFlags::has_codes()
  bool computes_drafts = false;  // the model's draft layers (model::DraftLayers)
  double made_up_bound = 0;      // where above 0 weights are uniform within it: for measuring speed
  bool nccl_alone = false;       // on GPUs: all of them (engine/ranks/peer_group.h)
  int rank = 0;                  // 1, 2, ...
  int num_ranks = 0;
  int port = 0;  // where rank 0 listens
  int num_threads = 0;
  int64_t collective_milliseconds = 0;  // deadline of each collective
};

std::string to_frame(const EngineRankStart& start);
bool is_engine_rank_start(std::string_view frame);
/// Of the frame of an EngineRankStart. Throws ConfigError for another.
EngineRankStart engine_rank_start_from(std::string_view frame);

/// What an engine says when it can be served.
struct EngineReady {
  int64_t max_request_tokens = 0;   // prompt and response together
  std::string device;               // that it computes on
  std::vector<std::string> memory;  // its table (estimate/memory_plan.h)
};

std::string to_text(const EngineReady& ready);
/// Throws ConfigError for a text of another form.
EngineReady engine_ready_from(std::string_view text);

/// Bytes of a tensor of the whole model, on their way to the controller.
struct NamedPiece {
  std::string_view name;  // of the frame, as the bytes
  uint64_t offset = 0;    // of the bytes in the tensor
  std::string_view bytes;
};
std::string to_frame(const NamedPiece& piece);
/// Throws BugError for bytes that are no piece.
NamedPiece named_piece_from(std::string_view frame);

std::string to_frame(const WeightChecksums& checksums);
/// Throws BugError for bytes that are none.
WeightChecksums checksums_from(std::string_view frame);

/// How the ranks that train divide the work.
comm::ParallelLayout layout_of(const config::ParallelFlags& config);

}  // namespace slime::roles
