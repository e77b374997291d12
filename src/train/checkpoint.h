#pragma once

/// Checkpoints: directories that open in transformers as they are, with the optimizer beside the
/// weights.
///
///   SAVE/iter_0000120/
///     config.json tokenizer.json ... model*.safetensors   opens in transformers
///     optimizer/{master,exp_avg,exp_avg_sq}.safetensors   Hugging Face names, float32
///     critic/ ...                                         of PPO (train/run_parts.h has all parts)
///     run.json                                            trainer state, and what the loop gave
///     COMMITTED                                           files, sizes, CRC-32C; written last
///   SAVE/latest_checkpointed_iteration.txt                replaced once the directory is durable
///
/// A checkpoint is written under a temporary name and renamed when it is complete and on the disk:
/// after kill -9 or a full disk the one before is untouched, and what was half-written is removed
/// by the next save.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "core/json.h"
#include "core/weight_checksums.h"
#include "model/adapter_tensors.h"
#include "train/trainer.h"

namespace slime::train {

struct CheckpointConfig {
  std::filesystem::path root;  // SAVE
  /// Directory whose tokenizer, template and generation files are copied.
  std::filesystem::path model_source;
  /// False: without moments and master weights, so that a run does not go on exactly
  /// (Megatron: no-save-optim).
  bool save_optimizer = true;
};

/// Writes iteration `iteration` and returns its directory. `run` is the loop's own state (ledger
/// position, seeds, flags); it comes back from load unchanged. Throws ConfigError when the disk is
/// full or not writable, with nothing left behind.
///
/// With several ranks rank 0 saves, and meanwhile its peers call join_save: what they have of each
/// tensor comes to rank 0 when it is written (train/whole_tensors.h). So a checkpoint is the same for
/// every layout, and each of them can read it.
std::filesystem::path save_checkpoint(const CheckpointConfig& config, int64_t iteration,
                                      Trainer& trainer, const json::object& run);
/// Content of run.json for a trainer as it is now; `run` as for save_checkpoint().
json::object run_file(const Trainer& trainer, int64_t iteration, const json::object& run);
/// The same as iteration 0 of an adapter that was copied from a trainer, without the optimizer: `run_file` is
/// of that moment. Any thread.
std::filesystem::path save_adapter(const CheckpointConfig& config,
                                   const model::AdapterTensors& tensors,
                                   const json::object& run_file);
/// What rank 0's peers do while it saves.
void join_save(Trainer& trainer, bool save_optimizer);

/// The weights of all ranks, whole, one tensor after the other: `take` is called at rank 0 alone; all
/// ranks call this together, and behind it whole_constants() (train/whole_tensors.h) where they want those.
using TakeTensor = std::function<void(const std::string& name, const Tensor& whole)>;
void gather_weights(Trainer& trainer, const TakeTensor& take);
/// Into `whole` at rank 0, which has a network of the whole model, plain or in another format; null at its peers.
void gather_weights(Trainer& trainer, model::Network* whole);
/// Of the same tensors and of the constants, at rank 0; elsewhere there are none. Of tensors that networks with
/// such matrices have as codes those of codes and factors.
WeightChecksums whole_checksums(Trainer& trainer,
                                kernels::MatrixFormat matrices = kernels::MatrixFormat::kPlain);

struct Checkpoint {
  std::filesystem::path directory;  // give it to model::load_network
  int64_t iteration = 0;
  json::object run;  // as given to save_checkpoint
  TrainerState trainer;
};

/// The checkpoint in a directory that was found to be whole. Throws ConfigError when run.json is
/// not of this program's form.
Checkpoint read_checkpoint(const std::filesystem::path& directory, int64_t iteration);

/// What finding a checkpoint has to tell people: "iter_0000120 is damaged: ...; falling back to
/// iter_0000100".
using Warn = std::function<void(const std::string&)>;

/// The newest checkpoint under `root` whose files are all there with the right sizes and checksums;
/// damaged ones are reported through `warn`, newest first. None when `root` has no checkpoint at
/// all. Throws ConfigError when there are some but each is damaged: a run never starts over
/// silently.
std::optional<Checkpoint> find_checkpoint(const std::filesystem::path& root, const Warn& warn);

/// Throws ConfigError for a checkpoint of float32, which has moments and no master weights: training
/// in fewer bits cannot go on with it as it is.
void check_has_masters(const std::filesystem::path& checkpoint);

/// Restores what `trainer` has of the parts of a run (train/run_parts.h), but those that the flags
/// `left_out` (LeavesOut) leave out; its network was loaded from checkpoint.directory, and a rank
/// reads the shards it owns. `warn` says which parts the checkpoint lacks, and how they begin.
/// Throws ConfigError when tensors do not fit: before any of them changes.
void restore_trainer(const Checkpoint& checkpoint, Trainer& trainer, uint32_t left_out,
                     const Warn& warn);
/// Says and throws what restore_trainer() would, and changes nothing.
void check_restorable(const Checkpoint& checkpoint, Trainer& trainer, uint32_t left_out,
                      const Warn& warn);

}  // namespace slime::train
