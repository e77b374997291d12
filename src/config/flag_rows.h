#pragma once

/// The rows of the flag table, one list per group, each in a file of its own (flag_rows_*.cpp).

#include <string_view>
#include <utility>
#include <vector>

#include "config/flag_table.h"
#include "config/unread_flags.h"
#include "config/users_functions.h"

namespace slime::config {

/// Values behind a flag that has no member.
inline constexpr int kSwitch = 0;
inline constexpr int kValue = 1;
inline constexpr int kList = 2;

inline FlagRow works(std::string_view name, FlagMember member, std::string_view meaning,
                     std::vector<std::string_view> choices = {}) {
  return {name, FlagGroup::kModel, FlagStatus::kWorks, member, meaning, std::move(choices), -1};
}
/// Of words with a meaning each.
inline FlagRow alias(std::string_view name, Alias alias, std::string_view meaning) {
  FlagRow row{name, FlagGroup::kModel, FlagStatus::kAlias, std::monostate(), meaning};
  row.takes_values = alias.is_switch() ? kSwitch : kValue;
  if (!alias.is_switch())
    for (const auto& [word, meanings] : alias.words) row.choices.push_back(word);
  row.alias = std::move(alias);
  return row;
}
/// `why` it has no effect here.
inline FlagRow accepted(std::string_view name, int takes_values, std::string_view why) {
  return {name, FlagGroup::kModel, FlagStatus::kAccepted, std::monostate(), why, {}, takes_values};
}
/// `instead`: what to use.
inline FlagRow refused(std::string_view name, int takes_values, std::string_view instead) {
  return {name, FlagGroup::kModel, FlagStatus::kRefused, std::monostate(), instead,
          {},   takes_values};
}

// Where stations read a flag deep in the run. A flag without one is read by a translation
// (loop/translations.h).
inline constexpr Condition kAnyRun{"any run", [](const RunConfig&) { return true; }};
inline constexpr Condition kTraining{"training, which --debug-rollout-only leaves out",
                                     [](const RunConfig& c) { return !c.debug_rollout_only; }};
inline constexpr Condition kGeneration{
    "generation: --loss-type policy_loss without a dump or --debug-train-only",
    [](const RunConfig& c) { return c.generates(); }};
inline constexpr Condition kResponses{"responses: --loss-type policy_loss",
                                      [](const RunConfig& c) { return !c.trains_on_rows(); }};
inline constexpr Condition kEvaluation{
    "--eval-interval, in a run that generates",
    [](const RunConfig& c) { return c.generates() && c.eval_interval.has_value(); }};
/// Evaluation of any kind: supervised training evaluates the loss on rows.
inline constexpr Condition kAnyEvaluation{
    "--eval-interval, in a run that generates or with --loss-type sft_loss",
    [](const RunConfig& c) {
      return (c.generates() || c.is_supervised()) && c.eval_interval.has_value();
    }};
inline constexpr Condition kReference{"--use-kl-loss, --kl-coef or --loss-type dpo_loss",
                                      [](const RunConfig& c) { return c.needs_reference(); }};
inline constexpr Condition kRowsOfData{
    "rows of --prompt-data",
    [](const RunConfig& c) { return !c.prompt_data.empty() && !c.disable_rollout_global_dataset; }};
/// Tools are rendered by a template, or are for functions of the user's.
inline constexpr Condition kToolsOfRows{
    "--apply-chat-template, and rows of --prompt-data", [](const RunConfig& c) {
      const bool reads_rows = !c.prompt_data.empty() && !c.disable_rollout_global_dataset;
      return reads_rows && (c.apply_chat_template || c.trains_on_rows() || has_users_code(c));
    }};
inline constexpr Condition kMessages{
    "conversations that a template renders (--apply-chat-template)",
    [](const RunConfig& c) { return !c.debug_train_only || c.trains_on_rows(); }};
inline constexpr Condition kCheckpoint{"a checkpoint to go on from",
                                       [](const RunConfig&) { return true; }};
inline constexpr Condition kShuffle{"--rollout-shuffle",
                                    [](const RunConfig& c) { return c.rollout_shuffle.get(); }};
inline constexpr Condition kRowTraining{"--loss-type sft_loss or dpo_loss",
                                        [](const RunConfig& c) { return c.trains_on_rows(); }};
inline constexpr Condition kSupervised{"rows of --loss-type sft_loss",
                                       [](const RunConfig& c) { return c.is_supervised(); }};
inline constexpr Condition kPreferences{"--loss-type dpo_loss",
                                        [](const RunConfig& c) { return c.is_preference(); }};
inline constexpr Condition kNoCount{"--num-epoch without --num-rollout",
                                    [](const RunConfig& c) { return !c.num_rollout; }};
inline constexpr Condition kUsersCode{"functions of your own (docs/plugins.md)",
                                      [](const RunConfig& c) { return has_users_code(c); }};
inline constexpr Condition kDrawingFunction{
    "--custom-generate-function-path, or a --rollout-function-path of your own",
    [](const RunConfig& c) {
      return !c.custom_generate_function_path.empty() || !c.eval_config.empty() ||
             has_users_rollout(c);
    }};
inline constexpr Condition kEnvironment{
    "--environment", [](const RunConfig& c) { return !c.environment.peek().empty(); }};
inline constexpr Condition kBufferFunction{"a --rollout-function-path that reads a buffer",
                                           [](const RunConfig& c) { return has_users_rollout(c); }};
inline constexpr Condition kAsyncRun{"slime train-async",
                                     [](const RunConfig& c) { return c.train_async.get(); }};
inline constexpr Condition kRounds{
    "--deterministic-schedule", [](const RunConfig& c) { return c.deterministic_schedule.get(); }};
inline constexpr Condition kEngineThreads{
    "engines on CPUs with weights of their own",
    [](const RunConfig& c) { return c.generates() && c.device == "cpu" && !c.takes_turns(); }};
inline constexpr Condition kWorkers{
    "several ranks or engines in processes of their own",
    [](const RunConfig& c) { return c.world_size() > 1 || c.num_engine_workers > 0; }};
inline constexpr Condition kEnginesApart{
    "--rollout-num-gpus without --colocate, in a run that generates",
    [](const RunConfig& c) { return c.num_engine_workers > 0; }};
inline constexpr Condition kEnginesOfRanks{
    "engines of their own, or several ranks that train and generate",
    [](const RunConfig& c) { return c.num_engine_workers > 0 || c.has_engine_on_each_rank(); }};
inline constexpr Condition kFaultTolerance{
    "--use-fault-tolerance or --rollout-session-id", [](const RunConfig& c) {
      return (c.use_fault_tolerance && (c.world_size() > 1 || c.num_engine_workers > 0)) ||
             c.keeps_engines();
    }};
inline constexpr Condition kSession{"--rollout-session-id", [](const RunConfig& c) {
                                      return !c.rollout_session_id.peek().empty();
                                    }};
inline constexpr Condition kDeviceMemory{
    "generation on a GPU", [](const RunConfig& c) { return c.generates() && c.device != "cpu"; }};
inline constexpr Condition kSharedDevice{
    "an engine that takes turns with the trainer",
    [](const RunConfig& c) { return c.generates() && !c.debug_rollout_only && c.takes_turns(); }};
inline constexpr Condition kRules{
    "a rule that asks for it: --rm-type, or metadata.rm_type of a row",
    [](const RunConfig& c) { return c.generates() && !c.has_users_reward(); }};
inline constexpr Condition kRecords{"rewards that are records with this field",
                                    [](const RunConfig& c) { return c.generates(); }};
inline constexpr Condition kRolloutFiles{
    "responses (--loss-type policy_loss), without --no-save-rollouts",
    [](const RunConfig& c) { return !c.trains_on_rows() && !c.no_save_rollouts; }};
inline constexpr Condition kView{"--view", [](const RunConfig& c) { return c.view.get(); }};
inline constexpr Condition kWandb{"--use-wandb",
                                  [](const RunConfig& c) { return c.use_wandb.get(); }};
inline constexpr Condition kTrackers{"--report-to, with a tracker", [](const RunConfig& c) {
                                       return c.use_wandb.get() || !c.report_to.peek().empty();
                                     }};
inline constexpr Condition kQueue{"--rollout-data-transport straw", [](const RunConfig& c) {
                                    return c.rollout_data_transport == "straw";
                                  }};
inline constexpr Condition kDump{"--load-debug-rollout-data", [](const RunConfig& c) {
                                   return !c.load_debug_rollout_data.empty();
                                 }};
inline constexpr Condition kProfile{"--profile",
                                    [](const RunConfig& c) { return c.profile.get(); }};
inline constexpr Condition kUpdates{"training and generation", [](const RunConfig& c) {
                                      return c.generates() && !c.debug_rollout_only;
                                    }};
inline constexpr Condition kRewardFunction{"--custom-rm-path",
                                           [](const RunConfig& c) { return c.has_users_reward(); }};

// Where reasons change.
inline constexpr Condition kSeveralEngines{
    "several engines",
    [](const RunConfig& c) { return c.num_engine_workers > 1 || c.has_engine_on_each_rank(); }};
inline constexpr Condition kLargeEngines{
    "engines of several ranks", [](const RunConfig& c) {
      return c.rollout_num_gpus_per_engine > 1 &&
             (c.num_engine_workers > 0 || c.has_engine_on_each_rank());
    }};
inline constexpr Condition kOwnWeights{"engines with weights of their own",
                                       [](const RunConfig& c) { return !c.shares_weights(); }};
inline constexpr Condition kSeveralRanks{"several ranks",
                                         [](const RunConfig& c) { return c.world_size() > 1; }};
inline constexpr Condition kSeveralHosts{"several hosts",
                                         [](const RunConfig& c) { return c.actor_num_nodes > 1; }};

// Reasons that many rows share.
inline constexpr std::string_view kAlways = "always so here";
inline constexpr std::string_view kFromConfig = "the architecture is read from config.json";
inline constexpr std::string_view kGpuPath = "chooses a GPU path; the program chooses its own";
inline constexpr std::string_view kOneWeights =
    "trainer and engine share one set of weights, nothing is moved or offloaded";
inline constexpr std::string_view kTwoWeights =
    "the trainer's weights stay where they are, and engines get what is new";
inline constexpr std::string_view kOneDispatcher =
    "rows travel to their experts by one exchange, of exactly the rows that there are";
inline constexpr std::string_view kOneEngine = "one engine serves the run";
inline constexpr std::string_view kOwnRouter =
    "the run's own router gives a request to the engine with its prefix or the least work; it "
    "listens on no port";
inline constexpr std::string_view kWholeEngines = "every engine does prefill and decode";
inline constexpr std::string_view kRanksOfEngine =
    "--rollout-num-gpus-per-engine ranks share all of an engine's layers, experts and cache";
inline constexpr std::string_view kNoDraftModel =
    "draft models of this kind are not computed, and responses are the same without one; "
    "--rollout-drafts suffix saves time without a model";

std::vector<FlagRow> model_flags();
std::vector<FlagRow> data_flags();
std::vector<FlagRow> queue_flags();
std::vector<FlagRow> rollout_flags();
std::vector<FlagRow> async_flags();
std::vector<FlagRow> engine_flags();
std::vector<FlagRow> sglang_flags();
std::vector<FlagRow> engine_worker_flags();
std::vector<FlagRow> reward_flags();
std::vector<FlagRow> algorithm_flags();
std::vector<FlagRow> optimizer_flags();
std::vector<FlagRow> adapter_flags();
std::vector<FlagRow> batch_flags();
std::vector<FlagRow> evaluation_flags();
std::vector<FlagRow> output_flags();
std::vector<FlagRow> shape_flags();
std::vector<FlagRow> parallel_flags();

}  // namespace slime::config
