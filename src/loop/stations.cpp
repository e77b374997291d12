// One file because it is the order in which a run is built.

#include "loop/stations.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "buffer/filter.h"
#include "cluster/workers.h"
#include "config/unread_flags.h"
#include "config/users_functions.h"
#include "core/error.h"
#include "loop/carried_state.h"
#include "loop/dump_source.h"
#include "loop/function_groups.h"
#include "loop/rollout_source.h"
#include "loop/row_source.h"
#include "loop/run_description.h"
#include "loop/run_engines.h"
#include "loop/run_networks.h"
#include "loop/run_session.h"
#include "loop/start_point.h"
#include "model/config.h"
#include "plugin/run_api.h"
#include "roles/run_start.h"
#include "rollout/other_records.h"
#include "setup/response_rules.h"
#include "setup/scores.h"
#include "setup/train_config.h"
#include "setup/vocabularies.h"
#include "train/commit_record.h"

namespace slime::loop {
namespace {

using Notes = std::vector<std::string>;

bool evaluates_by_sets(const config::RunConfig& config) {
  return config.generates() && config.eval_interval && !config::has_users_evaluation(config);
}

void append(Notes& notes, const Notes& more) {
  notes.insert(notes.end(), more.begin(), more.end());
}

void note_rows(const RunData& data, Notes& notes) {
  const std::optional<buffer::Dataset>& rows = data.rows();
  if (rows && rows->num_too_long() > 0) {
    notes.push_back(
        fmt::format("{} prompts are longer than --rollout-max-prompt-len and are left out",
                    rows->num_too_long()));
  }
  if (rows && !rows->left_out().empty()) {
    notes.push_back(fmt::format("{} rows are trained; left out: {}", rows->size(),
                                buffer::words_of_left_out(rows->left_out())));
  }
}

EvaluationSets read_evaluation_sets(const config::RunConfig& config, const setup::ModelText& text,
                                    Notes& notes) {
  EvaluationSets sets;
  if (evaluates_by_sets(config)) {
    sets.generated = std::make_unique<Evaluation>(config, text);
    append(notes, sets.generated->remarks());
  }
  if (config.is_supervised() && config.eval_interval && !config.debug_rollout_only &&
      (!config.eval_prompt_data.empty() || !config.eval_config.empty())) {
    sets.rows = std::make_unique<RowEvaluation>(config, text);
    append(notes, sets.rows->remarks());
  }
  return sets;
}

/// The functions of the user's, who alone know the `unknown` flags.
void start_plugins(Stations& run, const json::object& unknown, const EvaluationSets& sets) {
  const config::RunConfig& config = run.config;
  const std::vector<std::string> eval_rewards =
      sets.generated ? sets.generated->own_rewards() : std::vector<std::string>();
  if (config.deterministic_schedule && !eval_rewards.empty()) {
    throw ConfigError(fmt::format(
        "--deterministic-schedule and custom_rm_path {} of an evaluation set: rounds do "
        "not wait for answers of plug-in hosts",
        eval_rewards.front()));
  }
  const std::optional<train::Checkpoint>& checkpoint = run.course.start.checkpoint;
  const plugin::PluginPlaces places{.logs = run.records.folder.plugin_logs(),
                                    .save = run.records.folder.checkpoints(),
                                    .load = checkpoint ? checkpoint->directory.parent_path() : ""};
  std::unique_ptr<plugin::RunApi> run_api;
  if (config.generates() && plugin::opens_door(config))
    run_api = std::make_unique<plugin::RunApi>(config, *run.data.text);
  const bool draws = run_api != nullptr;
  run.plugins =
      std::make_unique<plugin::Plugins>(config, unknown, eval_rewards, places, std::move(run_api));
  if (draws && sets.generated) sets.generated->draw_by(*run.plugins);
}

/// Tokenizer, template, prompts and evaluation sets, as the day of the run's beginning renders
/// them; and functions of the user's. `kept`: rows that a run before this one has read.
EvaluationSets read_data(Stations& run, std::optional<buffer::Dataset> kept,
                         const json::object& unknown, Notes& notes) {
  const config::RunConfig& config = run.config;
  RunData& data = run.data;
  if (!data.text)
    data.text = std::make_unique<setup::ModelText>(setup::load_model_text(
        config.hf_checkpoint, roles::needs_template(config, evaluates_by_sets(config)),
        roles::first_day(run.course.start.checkpoint, run.launch.clock)));
  if (config.generates()) {
    setup::check_stop_tokens("--rollout-stop-token-ids", config.rollout_stop_token_ids.get(),
                             *data.text);
  }
  append(notes, setup::unread_variables(config, *data.text));
  const bool has_users = config::has_users_data_source(config);
  if (!has_users) data.origin = open_prompts(config, *data.text, std::move(kept));
  EvaluationSets sets = read_evaluation_sets(config, *data.text, notes);
  if (!has_users) note_rows(data, notes);
  // Rewards and filters that do not exist are found before networks are loaded.
  if (!config.has_users_reward()) setup::make_score(config);
  if (!config::has_users_filter(config)) buffer::make_filter(config.dynamic_sampling_filter_path);
  start_plugins(run, unknown, sets);
  if (has_users) data.origin = open_users_prompts(config, *data.text, *run.plugins);
  if (trains(config) && !trains_apart(config)) {
    run.topology.functions =
        std::make_unique<plugin::TrainerFunctions>(config, run.records.folder.plugin_logs(), 0);
  }
  return sets;
}

/// Whether anything is left to do, and which rows the last epoch ends with.
void check_length(const Stations& run, Notes& notes) {
  const config::RunConfig& config = run.config;
  const int64_t first = run.course.schedule.first_step, planned = run.course.schedule.num_steps;
  if (first > planned) refuse_fewer_steps(config, run.course.start, planned);
  if (run.course.start.checkpoint && first == planned) {
    notes.push_back(fmt::format(
        "nothing is left to do: all {} rollout steps are trained; {} would go on", planned,
        config.num_rollout ? "a greater --num-rollout" : "a greater --num-epoch"));
  }
  if (run.data.rows()) append(notes, roles::epoch_notes(config, run.data.rows()->size()));
}

void plan_schedule(Stations& run, const EvaluationSets& sets, Notes& notes) {
  const config::RunConfig& config = run.config;
  const StartPoint& start = run.course.start;
  setup::RunSchedule& schedule = run.course.schedule;
  schedule.num_steps = roles::planned_rollouts(config, run.data.rows());
  if (schedule.num_steps < 1) throw ConfigError("--num-epoch: the data has no row to train on");
  if (start.checkpoint) schedule.first_step = start.checkpoint->iteration + 1;
  // Trainers that begin again do so behind what they have saved, wherever the run began.
  if (config.start_rollout_id)
    schedule.first_step = std::max(schedule.first_step, *config.start_rollout_id);
  if (config.start_rollout_id.value_or(0) > 0 && schedule.first_step >= schedule.num_steps) {
    throw ConfigError(
        fmt::format("--start-rollout-id {}: nothing is left to do, the run has {} rollouts",
                    schedule.first_step, schedule.num_steps));
  }
  check_length(run, notes);
  if (sets.generated || sets.rows || config::has_users_evaluation(config))
    schedule.eval_interval = config.eval_interval;
  schedule.save_interval = config.save_interval;
  if (!config.num_rollout && run.data.rows())
    schedule.epoch = setup::EpochRows{run.data.rows()->size(), config.rollout_batch_size};
  schedule.skips_first_evaluation = config.skip_eval_before_train;
  if (config.has_update_interval()) schedule.steps_per_update = config.update_weights_interval;
}

/// Ordinals of groups that a data source of the user's did not have when it was saved.
std::set<int64_t> not_given_back(const StartPoint& start) {
  std::set<int64_t> ordinals;
  const json::value* saved =
      start.checkpoint ? start.checkpoint->run.if_contains("not_given_back") : nullptr;
  if (saved == nullptr || !saved->is_array()) return ordinals;
  for (const json::value& ordinal : saved->get_array())
    if (ordinal.is_int64()) ordinals.insert(ordinal.get_int64());
  return ordinals;
}

/// Groups that wait and are not gone on with, where engines draw by the flags alone.
Notes other_records(const Stations& run) {
  const config::RunConfig& config = run.config;
  if (!config.generates() || config::has_users_rollout(config) ||
      !config.custom_generate_function_path.empty())
    return {};
  const buffer::DataSource& prompts = run.data.prompts();
  std::vector<const Group*> waiting;
  for (const Group& group : prompts.waiting())
    if (!prompts.gave_finished(group.ordinal)) waiting.push_back(&group);
  const std::string note = rollout::other_records_note(waiting, setup::training_rules(config));
  return note.empty() ? Notes() : Notes{note};
}

/// The ledger, and the position in the data, of where the run goes on. From here on the run's
/// folder is written. Returns a step that was sampled ahead and is not trained, where the run has a
/// function that draws steps.
std::optional<SampledStep> open_records(Stations& run, BranchChoice& branch, Notes& notes) {
  const StartPoint& start = run.course.start;
  report::RunFolder& folder = run.records.folder;
  RunData& data = run.data;
  if (start.overwrites) report::remove_history(folder);
  begin_branch(run.config, std::exchange(branch, {}), folder,
               start.checkpoint ? start.checkpoint->iteration : -1, run.launch.clock);
  if (run.config.rollout_data_transport == "straw" && !run.config.rollout_data_dir.empty())
    folder.keep_rollouts_in(run.config.rollout_data_dir.get(), start.run_id);
  // A process that died between its checkpoint and the link left the link behind, or none.
  if (start.checkpoint && start.is_own) folder.set_latest(start.checkpoint->directory);
  std::unique_ptr<buffer::Ledger> ledger =
      roles::open_ledger(folder.ledger(), start.is_own ? start.checkpoint : std::nullopt);
  // The prompts of a dump were given out by another run.
  const bool is_dump = !run.config.load_debug_rollout_data.empty();
  data.outcomes = std::make_unique<OutcomeLog>(std::move(ledger), !is_dump);
  if (start.checkpoint) {
    const std::string where = (start.checkpoint->directory / "run.json").string();
    append(notes,
           data.prompts().restore(start.checkpoint->run.at("data_source").as_object(), where));
  }
  const int64_t first = run.course.schedule.first_step;
  data.origin->load(first - 1, not_given_back(start));
  // Of a rollout function one step ahead: trained first, where this run has such a function.
  std::optional<SampledStep> sampled;
  if (start.checkpoint) sampled = sampled_step_of(*start.checkpoint);
  data.outcomes->begin_with(data.prompts(),
                            sampled ? sampled->collected.groups : std::vector<Group>());
  const bool is_next = sampled && sampled->step == first;
  if (sampled && !(is_next && config::has_users_rollout(run.config)))
    let_wait(*std::exchange(sampled, std::nullopt), data.prompts(), *data.outcomes);
  folder.remove_rollouts_from(first);
  train::remove_commit_records(folder.checkpoints(), first);
  append(notes, replay_unsaved(run));
  if (start.checkpoint) append(notes, other_records(run));
  return sampled;
}

/// `sampled`: of a function of the user's, a step that the run begins with.
std::unique_ptr<GroupSource> make_source(Stations& run, std::optional<SampledStep> sampled) {
  const config::RunConfig& config = run.config;
  RunData& data = run.data;
  roles::Trainers& trainers = *run.topology.trainers;
  roles::Engines& engines = *run.topology.engines;
  report::RunMemory& memory = run.records.memory;
  report::Recorder& recorder = run.recorder();
  if (!config.load_debug_rollout_data.empty()) {
    return std::make_unique<DumpSource>(config.load_debug_rollout_data,
                                        config.load_debug_rollout_data_subsample, recorder);
  }
  if (config.trains_on_rows()) {
    return std::make_unique<RowSource>(config, *data.text, data.prompts(), *data.outcomes,
                                       recorder);
  }
  auto rollout =
      std::make_unique<RolloutSource>(config, *data.text->tokenizer, data.prompts(), engines,
                                      trainers, *data.outcomes, memory, recorder, *run.plugins);
  if (!config::has_users_rollout(config)) return rollout;
  auto function =
      std::make_unique<FunctionSource>(config, data.prompts(), engines, trainers, *data.outcomes,
                                       memory, recorder, *run.plugins, std::move(sampled));
  if (!config.train_async)
    return std::make_unique<FunctionGroups>(std::move(rollout), std::move(function));
  return std::make_unique<FunctionGroupsAhead>(
      std::move(rollout), std::move(function), run.course.schedule.num_steps,
      config.rollout_batch_size, *data.outcomes, trainers, memory, recorder);
}

/// An evaluation that a process took with it is made again, with the weights that the run goes on
/// with. The rows of the metrics are those that count.
void find_lost_evaluation(Stations& run, bool evaluates) {
  const StartPoint& start = run.course.start;
  // What a function of the user's logs has no rows here.
  const bool has_rows = run.config.custom_eval_rollout_log_function_path.empty();
  if (!evaluates || !has_rows || !start.checkpoint || !start.is_own) return;
  setup::RunSchedule& schedule = run.course.schedule;
  const std::optional<int64_t> due = schedule.last_evaluation_due();
  if (!due) return;
  const std::optional<int64_t> done = report::last_evaluated_step(run.records.folder.metrics());
  schedule.lost_evaluation = !done || *done < std::max<int64_t>(*due, 0);
}

}  // namespace

Stations::Stations(config::RunConfig flags, report::RunFolder run_folder,
                   const cluster::RunIdentity& identity, cluster::Hosts& hosts, const Clock& clock)
    : config(std::move(flags)),
      launch{identity, hosts, clock},
      records{.folder = std::move(run_folder),
              .timeline = report::Timeline(records.folder.timeline(), clock),
              .memory = report::RunMemory(config.device != "cpu", config.hf_checkpoint,
                                          records.folder.checkpoints())} {}

/// What engines tell goes before whom it is told.
Stations::~Stations() {
  if (!topology.engines) return;  // it was not built
  topology.engines->tell_by(nullptr);
  topology.engines->call_behind_writing(nullptr);
}

namespace {

/// How often the run saves, and how many checkpoints stay.
std::string checkpoints_kept(const Stations& run) {
  const config::RunConfig& config = run.config;
  const std::string kept =
      config.keep_checkpoints == 0
          ? "all of them stay"
          : fmt::format(
                "the newest {} stay (--keep-checkpoints; 0 keeps all, as the original does)",
                config.keep_checkpoints);
  return fmt::format("checkpoints: {}, in {}; {}", run.course.schedule.when_saved(),
                     run.records.folder.checkpoints().string(), kept);
}

void find_beginning(Stations& run, CarriedState& carried, Notes& notes) {
  const auto warn = [&notes](const std::string& line) { notes.push_back(line); };
  StartPoint& start = run.course.start;
  append(notes, std::exchange(carried.branch_notes, {}));
  start = carried.first ? choose_start_again(*carried.first, run.records.folder, warn)
                        : choose_start(run.config, run.records.folder, carried.branch, warn);
  if (carried.first) return;
  carried.identity.epoch = epoch_of(start) + 1;
  run.launch.identity = carried.identity;
  carried.first = start;
}

/// The recorder, and who tells it from elsewhere.
void start_recorder(Stations& run, const json::object& unknown, const Notes& notes) {
  Records& records = run.records;
  const json::object description = describe(run, unknown);
  records.folder.write_run_json(description);
  records.recorder = std::make_unique<report::Recorder>(
      run.config, records.folder, run.course.schedule, *run.data.text->tokenizer, description,
      records.memory, records.timeline, run.launch.clock);
  for (const std::string& line : notes) records.recorder->message(line);
  const auto tell = [&recorder = *records.recorder](const std::string& text) {
    recorder.message(text);
  };
  run.topology.engines->tell_by(tell);
  run.plugins->tell_by(tell);
  if (records.view) {
    records.view->tell_by(tell);
  } else if (run.config.view) {
    records.view = std::make_unique<report::ViewProcess>(records.folder.base().root,
                                                         run.config.view_port, tell);
  }
  run.topology.engines->call_behind_writing(
      [&run](const std::filesystem::path& folder) { run.plugins->of_steps().after_write(folder); });
  if (run.course.start.checkpoint) records.recorder->saved(run.course.start.checkpoint->iteration);
}

void build(Stations& run, const config::ParsedFlags& flags, CarriedState& carried) {
  Notes notes;
  const bool begins_again = carried.first.has_value();
  const report::RunFolder& folder = run.records.folder;
  if (!begins_again) {
    share_out_threads(run);
    notes = flags.warnings;
    append(notes, open_session(run));
    if (!folder.is_locked() && run.config.rollout_data_transport == "straw" &&
        run.config.rollout_storage_profile == "juicefs")
      throw ConfigError(fmt::format(
          "--rollout-storage-profile juicefs: {} has no file locks, so nothing keeps a second run "
          "out; mount it with them, or give another --run-dir",
          folder.root().string()));
    if (!folder.is_locked())
      notes.push_back(
          fmt::format("{}: its file system has no locks; a second run in the same folder "
                      "would not be noticed",
                      folder.root().string()));
  }
  find_beginning(run, carried, notes);
  EvaluationSets sets =
      read_data(run, std::exchange(carried.rows, std::nullopt), flags.unknown, notes);
  setup::check_vocabularies(run.config, *run.data.text->tokenizer, setup::other_models(run.config));
  plan_schedule(run, sets, notes);
  if (!begins_again)
    append(notes, setup::schedule_notes(run.config, run.course.schedule.num_steps));
  roles::TrainersApart* const apart = load_networks(run, notes);
  if (!begins_again) {
    append(notes, config::unread_at_start(flags));
    if (run.data.rows()) append(notes, roles::missing_fields(*run.data.rows(), run.config, flags));
    append(notes, roles::end_token_notes(run.config, *run.data.text));
    append(notes, run.records.memory.plan().lines());
    if (trains(run.config)) notes.push_back(checkpoints_kept(run));
  }
  std::optional<SampledStep> sampled = open_records(run, carried.branch, notes);
  carried.first->overwrites = false;
  start_engines(run, apart);
  start_recorder(run, flags.unknown, notes);
  run.source = make_source(run, std::move(sampled));
  find_lost_evaluation(run,
                       sets.generated || sets.rows || config::has_users_evaluation(run.config));
  run.evaluator = make_evaluator({.config = run.config,
                                  .text = *run.data.text,
                                  .trainers = *run.topology.trainers,
                                  .engines = *run.topology.engines,
                                  .source = *run.source,
                                  .prompts = run.data.prompts(),
                                  .outcomes = *run.data.outcomes,
                                  .plugins = *run.plugins,
                                  .memory = run.records.memory,
                                  .recorder = run.recorder(),
                                  .timeline = run.records.timeline,
                                  .clock = run.launch.clock,
                                  .engine_threads = run.topology.engine_threads},
                                 std::move(sets));
  run.checkpoints = std::make_unique<Checkpoints>(
      run.config, folder,
      CheckpointOwner{run.course.start.run_id, run.data.text->today, run.launch.identity.epoch,
                      settings_of(run.config)},
      run.data, *run.source, *run.topology.trainers, *run.topology.engines, run.records.memory,
      run.recorder());
  run.interrupt = std::make_unique<core::Interrupt>();
  if (begins_again)
    run.recorder().message(fmt::format("trainer ranks train again, in epoch {}, from rollout {} on",
                                       run.launch.identity.epoch, run.course.schedule.first_step));
}

}  // namespace

std::unique_ptr<Stations> build_stations(config::ParsedFlags flags, CarriedState& carried,
                                         cluster::Hosts& hosts, const Clock& clock) {
  std::unique_ptr<Stations> run = stations_of(std::move(flags.config), carried, hosts, clock);
  try {
    build(*run, flags, carried);
  } catch (const cluster::WorkerFailure&) {
    take_carried_state(std::move(run), carried);
    throw;
  }
  return run;
}

}  // namespace slime::loop
