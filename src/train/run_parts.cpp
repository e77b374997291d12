#include "train/run_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"

namespace slime::train {
namespace {

// clang-format off
const std::array<PartRow, 18>& part_table() {
  using enum RunPart;
  constexpr uint32_t kOptimizerFlags = kNoSaveOptim | kNoLoadOptim | kFinetune | kOtherFreeze;
  static const std::array<PartRow, 18> kTable{{
      {kWeights, "the actor's weights", ".", {"model"}, HeldBy::kEachRank, true, 0, false,
       "those of --hf-checkpoint"},
      {kOptimizer, "Adam's moments, step counter and master weights of the actor", "optimizer",
       {"exp_avg", "exp_avg_sq", "master"}, HeldBy::kShards, false, kOptimizerFlags, true,
       "zero moments at step 0, and the weights as they are saved"},
      {kCritic, "the critic's weights", "critic", {"weights"}, HeldBy::kEachRank, false, kCriticLoad,
       true, "those of --critic-load, or else --hf-checkpoint"},
      {kCriticHead, "the critic's head", "critic", {"head"}, HeldBy::kEachRank, false, kCriticLoad,
       true, "fresh random numbers"},
      {kCriticOptimizer, "Adam's moments, step counter and master weights of the critic", "critic",
       {"exp_avg", "exp_avg_sq", "master", "head_exp_avg", "head_exp_avg_sq", "head_master"},
       HeldBy::kShards, false, kNoSaveOptim | kNoLoadOptim | kFinetune, true,
       "zero moments at step 0, and the critic's weights as they are saved"},
      {kReference, "the reference that moves with --ref-update-interval", "optimizer", {"reference"},
       HeldBy::kEachRank, false, kFinetune, true, "the model of --ref-load"},
      {kOldActor, "the old actor of --keep-old-actor", "optimizer", {"old_actor"}, HeldBy::kEachRank,
       false, kFinetune, true, "the actor's weights"},
      {kRolloutActor, "the rollout actor of --keep-old-actor", "optimizer", {"rollout_actor"},
       HeldBy::kEachRank, false, kFinetune, true, "the actor's weights"},
      {kSchedule, "the position in the schedules of learning rates", "",
       {"samples_done", "critic_samples_done"}, HeldBy::kController, false, kFinetune, false,
       "their beginning"},
      {kCounters, "the counts of rollouts and training steps", "",
       {"num_steps", "rollouts_done", "skipped_in_a_row", "critic_skipped_in_a_row"},
       HeldBy::kController, false, kFinetune, false, "0"},
      // Random numbers are counted, not sampled from a state: a seed, and the ordinal of a sample.
      {kRandom, "random numbers", "", {"data_source"}, HeldBy::kController, false, kFinetune, false,
       "the seeds --seed and --rollout-seed"},
      {kData, "the position in the data", "", {"data_source"}, HeldBy::kController, false, kFinetune,
       false, "the first row"},
      {kBuffer, "groups that wait, with the tokens that they have", "", {"data_source"},
       HeldBy::kController, false, kFinetune, false, "none"},
      {kLedger, "the position in the ledger", "", {"ledger"}, HeldBy::kController, false, kFinetune,
       false, "an empty ledger"},
      {kSampledStep, "the step that a rollout function has sampled ahead", "", {"drawn_step"},
       HeldBy::kController, false, kFinetune, true, "none"},
      {kUsersData, "the state of --data-source-path", "", {"not_given_back"}, HeldBy::kController,
       false, kFinetune, true, "load(-1) of the class"},
      {kVersion, "the version of the weights, and whether engines had them", "",
       {"weight_version", "is_published"}, HeldBy::kController, true, kFinetune, false, "version 0"},
      {kDay, "the day that chat templates show", "", {"started"}, HeldBy::kController, false,
       kFinetune, true, "today"},
  }};
  return kTable;
}
// clang-format on

struct FlagName {
  LeavesOut flag;
  const char* name;
  const char* lead;  // between the flag and the parts
};

constexpr std::array<FlagName, 5> kFlagNames{{
    {kNoSaveOptim, "--no-save-optim", "checkpoints leave out"},
    {kNoLoadOptim, "--no-load-optim", "does not take from the checkpoint"},
    {kFinetune, "--finetune", "does not take from the checkpoint"},
    {kCriticLoad, "--critic-load", "is taken instead of the checkpoint's critic:"},
    {kOtherFreeze, "--freeze-params-name-list, --only-train-params-name-list, --freeze-indexer",
     "differ from the run, so it does not take from the checkpoint"},
}};

}  // namespace

std::span<const PartRow> run_parts() { return part_table(); }

const PartRow& row_of(RunPart part) {
  const auto found = std::ranges::find(part_table(), part, &PartRow::part);
  check(found != part_table().end(), "a part of a run is in the table");
  return *found;
}

bool is_carried(const PartRow& row, uint32_t flags) { return (row.left_out_by & flags) == 0; }

std::vector<std::string> forgotten(uint32_t flags, const std::vector<RunPart>& has) {
  std::vector<std::string> lines;
  for (const FlagName& flag : kFlagNames) {
    if ((flags & flag.flag) == 0) continue;
    std::vector<std::string> parts;
    for (const RunPart part : has) {
      const PartRow& row = row_of(part);
      if ((row.left_out_by & flag.flag) != 0)
        parts.push_back(fmt::format("{} (begins with: {})", row.name, row.begins));
    }
    if (!parts.empty())
      lines.push_back(fmt::format("{} {} {}", flag.name, flag.lead, fmt::join(parts, "; ")));
  }
  return lines;
}

}  // namespace slime::train
