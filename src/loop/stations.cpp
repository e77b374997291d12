// One file because it is the order in which a run is built.

#include "loop/stations.h"
#include "setup/evaluation_plan.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "buffer/filter.h"
#include "cluster/workers.h"
#include "config/secrets.h"
#include "config/unread_flags.h"
#include "config/users_functions.h"
#include "core/error.h"
#include "loop/changed_settings.h"
#include "loop/dump_source.h"
#include "loop/function_source.h"
#include "loop/row_source.h"
#include "loop/run_engines.h"
#include "loop/run_networks.h"
#include "loop/start_point.h"
#include "loop/survivors.h"
#include "model/config.h"
#include "model/placement.h"
#include "report/run_history.h"
#include "report/tracking.h"
#include "roles/engine_workers.h"
#include "roles/run_start.h"
#include "setup/run_devices.h"
#include "setup/scores.h"
#include "setup/train_config.h"
#include "setup/vocabularies.h"

namespace slime::loop {
namespace {

using Notes = std::vector<std::string>;

buffer::DataSourceConfig order_of(const config::RunConfig& config) {
  return {.samples_per_prompt = config.n_samples_per_prompt,
          .shuffle = config.rollout_shuffle && !config::has_users_data_source(config),
          .seed = config.rollout_seed};
}

void read_prompts(Stations& run) {
  const config::RunConfig& config = run.config;
  if (config.streaming_data) {
    run.stream = setup::stream_prompts(config, *run.text);
    run.prompts.emplace(*run.stream, order_of(config));
    return;
  }
  const bool has_dataset = !config.prompt_data.empty() && !config.disable_rollout_global_dataset;
  if (has_dataset && !run.dataset) run.dataset = setup::load_prompts(config, *run.text);
  run.prompts.emplace(run.dataset ? &*run.dataset : nullptr, order_of(config));
}

void append(Notes& notes, const Notes& more) {
  notes.insert(notes.end(), more.begin(), more.end());
}

/// Tokenizer, template, prompts and evaluation sets, as the day of the run's beginning renders
/// them; and functions of the user's, who alone know the `unknown` flags.
void read_data(Stations& run, const json::object& unknown, Notes& notes) {
  const config::RunConfig& config = run.config;
  const StartPoint& start = run.start;
  const bool evaluates =
      config.generates() && config.eval_interval && !config::has_users_evaluation(config);
  if (!run.text)
    run.text = std::make_unique<setup::ModelText>(
        setup::load_model_text(config.hf_checkpoint, roles::needs_template(config, evaluates),
                               roles::first_day(start.checkpoint, run.clock)));
  if (config.generates()) {
    setup::check_stop_tokens("--rollout-stop-token-ids", config.rollout_stop_token_ids.get(),
                             *run.text);
  }
  append(notes, setup::unread_variables(config, *run.text));
  if (!config::has_users_data_source(config)) read_prompts(run);
  if (evaluates) {
    run.evaluation.emplace(config, *run.text);
    notes.insert(notes.end(), run.evaluation->remarks().begin(), run.evaluation->remarks().end());
  }
  if (config.is_supervised() && config.eval_interval && !config.debug_rollout_only &&
      (!config.eval_prompt_data.empty() || !config.eval_config.empty())) {
    run.row_evaluation.emplace(config, *run.text);
    notes.insert(notes.end(), run.row_evaluation->remarks().begin(),
                 run.row_evaluation->remarks().end());
  }
  if (run.dataset && run.dataset->num_too_long() > 0) {
    notes.push_back(
        fmt::format("{} prompts are longer than --rollout-max-prompt-len and are left out",
                    run.dataset->num_too_long()));
  }
  if (run.dataset && !run.dataset->left_out().empty()) {
    notes.push_back(fmt::format("{} rows are trained; left out: {}", run.dataset->size(),
                                buffer::words_of_left_out(run.dataset->left_out())));
  }
  // Rewards and filters that do not exist are found before networks are loaded.
  if (!config.has_users_reward()) setup::make_score(config);
  if (!config::has_users_filter(config)) buffer::make_filter(config.dynamic_sampling_filter_path);
  const std::vector<std::string> eval_rewards =
      run.evaluation ? run.evaluation->own_rewards() : std::vector<std::string>();
  if (config.deterministic_schedule && !eval_rewards.empty()) {
    throw ConfigError(fmt::format(
        "--deterministic-schedule and custom_rm_path {} of an evaluation set: rounds do "
        "not wait for answers of plug-in hosts",
        eval_rewards.front()));
  }
  const bool draws = config.generates() && plugin::opens_door(config);
  if (draws) run.door = std::make_unique<plugin::EngineDoor>(config, *run.text);
  if (draws || !config::users_functions(config).empty() || !eval_rewards.empty()) {
    const plugin::PluginPlaces places{
        .logs = run.folder.plugin_logs(),
        .save = run.folder.checkpoints(),
        .load = start.checkpoint ? start.checkpoint->directory.parent_path() : ""};
    run.plugins =
        std::make_unique<plugin::Plugins>(config, unknown, eval_rewards, places, run.door.get());
  }
  if (config::has_users_data_source(config)) {
    run.users_prompts = run.plugins->prompts(*run.text);
    run.prompts.emplace(*run.users_prompts, order_of(config));
  }
  if (draws && run.evaluation) run.evaluation->draw_by(*run.plugins);
  if (trains(config) && !trains_apart(config))
    run.functions = std::make_unique<plugin::TrainerFunctions>(config, run.folder.plugin_logs(), 0);
}

/// Whether anything is left to do, and which rows the last epoch ends with.
void check_length(const Stations& run, Notes& notes) {
  const config::RunConfig& config = run.config;
  const int64_t first = run.schedule.first_step, planned = run.schedule.num_steps;
  if (first > planned) refuse_fewer_steps(config, run.start, planned);
  if (run.start.checkpoint && first == planned) {
    notes.push_back(fmt::format(
        "nothing is left to do: all {} rollout steps are trained; {} would go on", planned,
        config.num_rollout ? "a greater --num-rollout" : "a greater --num-epoch"));
  }
  if (run.dataset) append(notes, roles::epoch_notes(config, run.dataset->size()));
}

void plan_schedule(Stations& run, Notes& notes) {
  const config::RunConfig& config = run.config;
  const StartPoint& start = run.start;
  setup::RunSchedule& schedule = run.schedule;
  schedule.num_steps = roles::planned_rollouts(config, run.dataset);
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
  if (run.evaluation || run.row_evaluation || config::has_users_evaluation(config))
    schedule.eval_interval = config.eval_interval;
  schedule.save_interval = config.save_interval;
  if (!config.num_rollout && run.dataset)
    schedule.epoch = setup::EpochRows{run.dataset->size(), config.rollout_batch_size};
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

/// The ledger, and the position in the data, of where the run goes on. From here on the run's
/// folder is written.
void open_records(Stations& run, Notes& notes) {
  const StartPoint& start = run.start;
  if (start.overwrites) report::remove_history(run.folder);
  // A process that died between its checkpoint and the link left the link behind, or none.
  if (start.checkpoint && start.is_own) run.folder.set_latest(start.checkpoint->directory);
  std::unique_ptr<buffer::Ledger> ledger =
      roles::open_ledger(run.folder.ledger(), start.is_own ? start.checkpoint : std::nullopt);
  // The prompts of a dump were given out by another run.
  const bool is_dump = !run.config.load_debug_rollout_data.empty();
  run.fates = std::make_unique<Fates>(std::move(ledger), !is_dump);
  if (start.checkpoint) {
    const std::string where = (start.checkpoint->directory / "run.json").string();
    for (const std::string& remark :
         run.prompts->restore(start.checkpoint->run.at("data_source").as_object(), where))
      notes.push_back(remark);
  }
  if (run.users_prompts) {
    const std::deque<Group>& waiting = run.prompts->waiting();
    run.users_prompts->load(run.schedule.first_step - 1, {waiting.begin(), waiting.end()},
                            not_given_back(start));
  }
  // Of a rollout function one step ahead: trained first, where this run has such a function.
  if (start.checkpoint) run.drawn = drawn_step_of(*start.checkpoint);
  run.fates->begin_with(*run.prompts,
                        run.drawn ? run.drawn->collected.groups : std::vector<Group>());
  const bool is_next = run.drawn && run.drawn->step == run.schedule.first_step;
  if (run.drawn && !(is_next && config::has_users_rollout(run.config)))
    let_wait(*std::exchange(run.drawn, std::nullopt), *run.prompts, *run.fates);
  run.folder.remove_rollouts_from(run.schedule.first_step);
}

int64_t num_parameters(const model::ModelConfig& model) {
  return model::make_blank_network(model, {.device = at::kMeta})->weights().num_parameters();
}

/// Rows of the data set that are not trained, by reason.
json::object left_out(const Stations& run) {
  json::object counts;
  if (!run.dataset) return counts;
  for (const auto& [reason, count] : run.dataset->left_out()) counts[reason] = count;
  if (run.dataset->num_too_long() > 0)
    counts["prompt_longer_than_max_prompt_len"] = run.dataset->num_too_long();
  return counts;
}

/// All starts of the run so far, this one last. Its flags stand there where they differ from those
/// of the one before.
json::array starts_of(const Stations& run) {
  const json::object known = report::read_history(run.folder).run;
  json::array starts;
  json::object flags_before;
  if (const json::value* flags = known.if_contains("flags"); flags != nullptr && flags->is_object())
    flags_before = flags->get_object();
  if (const json::value* before = known.if_contains("starts");
      before != nullptr && before->is_array())
    starts = before->get_array();
  if (starts.empty() && !flags_before.empty())
    starts.push_back(json::object{{"first_rollout", 0}, {"flags", flags_before}});
  json::object now{{"time", run.clock.unix_seconds()},
                   {"first_rollout", run.schedule.first_step},
                   {"epoch", run.identity.epoch},
                   {"weights", run.start.weights}};
  json::object flags = config::changed_flags(run.config);
  if (starts.empty() || flags != flags_before) now["flags"] = std::move(flags);
  starts.push_back(std::move(now));
  return starts;
}

json::object describe(const Stations& run, const json::object& unknown) {
  return {{"run_id", run.start.run_id},
          {"starts", starts_of(run)},
          {"model", run.config.hf_checkpoint},
          {"model_type", run.shape().config().model_type},
          {"num_parameters", num_parameters(run.shape().config())},
          {"dtype", run.config.dtype},
          {"num_rollout", run.schedule.num_steps},
          {"loss_type", run.config.loss_type},
          {"trainer_threads", at::get_num_threads()},
          {"left_out", left_out(run)},
          {"flags", config::changed_flags(run.config)},
          {"unknown_flags", config::without_secrets(unknown)}};
}

void make_source(Stations& run) {
  const config::RunConfig& config = run.config;
  if (!config.load_debug_rollout_data.empty()) {
    run.others = std::make_unique<DumpSource>(
        config.load_debug_rollout_data, config.load_debug_rollout_data_subsample, *run.recorder);
  } else if (config.trains_on_rows()) {
    run.others =
        std::make_unique<RowSource>(config, *run.text, *run.prompts, *run.fates, *run.recorder);
  } else {
    run.rollout = std::make_unique<RolloutSource>(config, *run.text->tokenizer, *run.prompts,
                                                  run.engines(), *run.trainers, *run.fates,
                                                  run.memory, *run.recorder, run.plugins.get());
    if (config::has_users_rollout(config)) {
      run.function = std::make_unique<FunctionSource>(
          config, *run.prompts, run.engines(), *run.trainers, *run.fates, run.memory, *run.recorder,
          *run.plugins, run.door.get(), std::exchange(run.drawn, std::nullopt));
      if (!config.train_async) return;
      run.ahead = std::make_unique<FunctionAhead>(*run.function, run.schedule.num_steps,
                                                  config.rollout_batch_size, *run.trainers,
                                                  run.memory, *run.recorder);
      run.fates->lend_by([&function = *run.function] {
        return std::make_shared<FunctionSource::Lease>(function);
      });
    } else if (config.train_async) {
      run.fates->lend_by([&rollout = run.rollout->rollout()] {
        return std::make_shared<rollout::Rollout::Lease>(rollout);
      });
    }
  }
}

/// Weights of the second engine come and go with each evaluation. Of the engine's cores it takes
/// few: nobody waits for it.
void start_evaluation_beside(Stations& run) {
  if (!run.evaluation || !setup::evaluates_beside(run.config)) return;
  engine::EngineConfig engine =
      roles::make_engine_config(run.config, *run.text, run.memory.plan().eval_cache_bytes());
  engine.max_running_requests = setup::evaluation_requests(run.config);
  if (run.engine_threads > 0) engine.num_threads = std::max<int64_t>(1, run.engine_threads / 4);
  run.beside = std::make_unique<EvaluationBeside>(
      *run.evaluation, run.config, std::move(engine),
      scoring_hooks(run.config, *run.text->tokenizer, run.plugins.get()), run.memory, run.timeline,
      run.clock);
}

/// An evaluation that a process took with it is made again, with the weights that the run goes on
/// with. The rows of the metrics are those that count.
void find_lost_evaluation(Stations& run) {
  const StartPoint& start = run.start;
  // What a function of the user's logs has no rows here.
  const bool evaluates =
      run.evaluation || run.row_evaluation || config::has_users_evaluation(run.config);
  const bool has_rows = run.config.custom_eval_rollout_log_function_path.empty();
  if (!evaluates || !has_rows || !start.checkpoint || !start.is_own) return;
  const std::optional<int64_t> due = run.schedule.last_evaluation_due();
  if (!due) return;
  const std::optional<int64_t> done = report::last_evaluated_step(run.folder.metrics());
  run.schedule.lost_evaluation = !done || *done < std::max<int64_t>(*due, 0);
}

}  // namespace

Stations::Stations(config::RunConfig flags, report::RunFolder run_folder,
                   const cluster::RunIdentity& identity_in, cluster::Hosts& hosts_in,
                   const Clock& clock_in)
    : config(std::move(flags)),
      identity(identity_in),
      hosts(hosts_in),
      clock(clock_in),
      folder(std::move(run_folder)),
      timeline(folder.timeline(), clock_in),
      memory(config.device != "cpu", config.hf_checkpoint, folder.checkpoints()) {}

/// The recorder goes before the engines.
Stations::~Stations() {
  if (engine_workers) {
    engine_workers->tell_by(nullptr);
    engine_workers->call_behind_writing(nullptr);
  }
}

namespace {

/// How often the run saves, and how many checkpoints stay.
std::string checkpoints_kept(const Stations& run) {
  const config::RunConfig& config = run.config;
  const std::string interval =
      config.save_interval ? fmt::format("every {} rollouts and at the end", *config.save_interval)
                           : "at the end alone (--save-interval)";
  const std::string kept =
      config.keep_checkpoints == 0
          ? "all of them stay"
          : fmt::format(
                "the newest {} stay (--keep-checkpoints; 0 keeps all, as the original does)",
                config.keep_checkpoints);
  return fmt::format("checkpoints: {} in {}; {}", interval, run.folder.checkpoints().string(),
                     kept);
}

void find_beginning(Stations& run, Survivors& survivors, Notes& notes) {
  const auto warn = [&notes](const std::string& line) { notes.push_back(line); };
  run.start = survivors.first ? choose_start_again(*survivors.first, run.folder, warn)
                              : choose_start(run.config, run.folder, warn);
  if (survivors.first) return;
  survivors.identity.epoch = epoch_of(run.start) + 1;
  run.identity = survivors.identity;
  survivors.first = run.start;
}

void build(Stations& run, const config::ParsedFlags& flags, Survivors& survivors) {
  Notes notes;
  const bool begins_again = survivors.first.has_value();
  if (!begins_again) {
    share_out_threads(run);
    notes = flags.warnings;
    if (!run.folder.is_locked())
      notes.push_back(
          fmt::format("{}: its file system has no locks; a second run in the same folder "
                      "would not be noticed",
                      run.folder.root().string()));
  }
  find_beginning(run, survivors, notes);
  read_data(run, flags.unknown, notes);
  setup::check_vocabularies(run.config, *run.text->tokenizer, setup::other_models(run.config));
  plan_schedule(run, notes);
  if (!begins_again) append(notes, setup::schedule_notes(run.config, run.schedule.num_steps));
  load_networks(run, notes);
  if (!begins_again) {
    append(notes, config::unread_at_start(flags));
    if (run.dataset) append(notes, roles::missing_fields(*run.dataset, run.config, flags));
    append(notes, roles::end_token_notes(run.config, *run.text));
    append(notes, run.memory.plan().lines());
    if (trains(run.config)) notes.push_back(checkpoints_kept(run));
  }
  open_records(run, notes);
  survivors.first->overwrites = false;
  start_engines(run);
  const json::object description = describe(run, flags.unknown);
  run.folder.write_run_json(description);
  run.recorder =
      std::make_unique<report::Recorder>(run.config, run.folder, run.schedule, *run.text->tokenizer,
                                         description, run.memory, run.timeline, run.clock);
  for (const std::string& line : notes) run.recorder->message(line);
  const auto tell = [&recorder = *run.recorder](const std::string& text) {
    recorder.message(text);
  };
  run.engines().tell_by(tell);
  if (run.plugins) run.plugins->tell_by(tell);
  if (run.engine_workers && run.plugins) {
    run.engine_workers->call_behind_writing([&run](const std::filesystem::path& folder) {
      run.plugins->of_steps().after_write(folder);
    });
  }
  if (run.start.checkpoint) run.recorder->saved(run.start.checkpoint->iteration);
  make_source(run);
  start_evaluation_beside(run);
  find_lost_evaluation(run);
  run.checkpoints = std::make_unique<Checkpoints>(
      run.config, run.folder,
      CheckpointOwner{run.start.run_id, run.text->today, run.identity.epoch,
                      settings_of(run.config)},
      *run.prompts, *run.trainers, *run.fates, run.engines(), run.rollout.get(), run.function.get(),
      run.users_prompts.get(), run.memory, *run.recorder);
  run.interrupt.emplace();
  if (begins_again)
    run.recorder->message(fmt::format("trainer ranks train again, in epoch {}, from rollout {} on",
                                      run.identity.epoch, run.schedule.first_step));
}

}  // namespace

std::unique_ptr<Stations> build_stations(config::ParsedFlags flags, Survivors& survivors,
                                         cluster::Hosts& hosts, const Clock& clock) {
  std::unique_ptr<Stations> run = stations_of(std::move(flags.config), survivors, hosts, clock);
  try {
    build(*run, flags, survivors);
  } catch (const cluster::WorkerFailure&) {
    take_survivors(std::move(run), survivors);
    throw;
  }
  return run;
}

}  // namespace slime::loop
