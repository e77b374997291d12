#pragma once

/// Inventory of a run: all that it carries on from one process to the next.
///
/// Each part is declared once, in the table of run_parts.cpp: where a checkpoint has it, how ranks
/// hold it, whether engines get it, which flags leave it out, and how a run begins without it. Code
/// that saves and restores (train/checkpoint.cpp for tensors and counters, loop/data_state.cpp for
/// the position in the data) asks this table and decides nothing itself.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace slime::train {

enum class RunPart {
  kWeights,
  kOptimizer,
  kCritic,
  kCriticHead,
  kCriticOptimizer,
  kReference,
  kOldActor,
  kRolloutActor,
  kSchedule,
  kCounters,
  kRandom,
  kData,
  kBuffer,
  kLedger,
  kSampledStep,
  kUsersData,
  kVersion,
  kDay,
};

/// Where the newest state of a part is while the run goes on.
enum class HeldBy {
  kEachRank,    // whole, or its slices under tensor, expert and pipeline parallelism
  kShards,      // of a distributed optimizer: each rank its own (train/shards.h)
  kController,  // the process of the loop, and rank 0
};

/// Flags that leave parts out; bits of PartRow::left_out_by.
enum LeavesOut : uint32_t {
  kNoSaveOptim = 1,   // --no-save-optim: of what is saved
  kNoLoadOptim = 2,   // --no-load-optim: of what is restored
  kFinetune = 4,      // --finetune, or --load of a model directory: of what is restored
  kCriticLoad = 8,    // --critic-load with --finetune: of what is restored
  kOtherFreeze = 16,  // --freeze*, --only-train-params-name-list that differ: of what is restored
};

struct PartRow {
  RunPart part;
  const char* name;  // for people
  /// Folder of its files in a checkpoint; empty: it is members of run.json, "." beside config.json.
  const char* folder;
  std::vector<std::string_view> stems;  // of its files, or the members
  HeldBy held_by;
  bool is_published;     // to the engines
  uint32_t left_out_by;  // LeavesOut
  /// A checkpoint may lack it, because its run did not have it or left it out.
  bool may_be_missing;
  const char* begins;  // how a run begins that does not get it
};

std::span<const PartRow> run_parts();
const PartRow& row_of(RunPart part);

/// Whether a run that has the part saves it, or goes on with it, under these flags (LeavesOut).
bool is_carried(const PartRow& row, uint32_t flags);

/// What people are told of flags that leave parts out, a line for each flag: "--no-load-optim:
/// Adam's moments and master weights begin with zero moments and step 0". `has`: which parts the
/// run has.
std::vector<std::string> forgotten(uint32_t flags, const std::vector<RunPart>& has);

}  // namespace slime::train
