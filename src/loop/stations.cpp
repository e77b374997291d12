#include "loop/stations.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "buffer/filter.h"
#include "config/secrets.h"
#include "config/users_functions.h"
#include "core/error.h"
#include "loop/dump_source.h"
#include "loop/engine_workers.h"
#include "loop/engine_workers_config.h"
#include "loop/function_source.h"
#include "loop/memory_needs.h"
#include "loop/networks.h"
#include "loop/rank_engines.h"
#include "loop/row_source.h"
#include "loop/run_devices.h"
#include "loop/run_history.h"
#include "loop/run_start.h"
#include "loop/scores.h"
#include "loop/start_point.h"
#include "loop/tracking.h"
#include "loop/train_config.h"
#include "model/placement.h"

namespace slime::loop {
namespace {

using Notes = std::vector<std::string>;

bool trains(const config::RunConfig& config) { return !config.debug_rollout_only; }

bool generates(const config::RunConfig& config) {
  return !config.debug_train_only && !config.trains_on_rows();
}

buffer::DataSourceConfig order_of(const config::RunConfig& config) {
  return {.samples_per_prompt = config.n_samples_per_prompt,
          .shuffle = config.rollout_shuffle && !config::has_users_data_source(config),
          .seed = config.rollout_seed};
}

void read_prompts(Stations& run) {
  const config::RunConfig& config = run.config;
  if (config.streaming_data) {
    run.stream = stream_prompts(config, run.text);
    run.prompts.emplace(*run.stream, order_of(config));
    return;
  }
  if (!config.prompt_data.empty() && !config.disable_rollout_global_dataset)
    run.dataset = load_prompts(config, run.text);
  run.prompts.emplace(run.dataset ? &*run.dataset : nullptr, order_of(config));
}

/// Tokenizer, template, prompts and evaluation sets, as the day of the run's beginning renders
/// them; and functions of the user's, who alone know the `unknown` flags.
void read_data(Stations& run, const StartPoint& start, const json::object& unknown, Notes& notes) {
  const config::RunConfig& config = run.config;
  const bool evaluates =
      generates(config) && config.eval_interval && !config::has_users_evaluation(config);
  run.text = load_model_text(config.hf_checkpoint, needs_template(config, evaluates),
                             first_day(start.checkpoint, run.clock));
  if (!config::has_users_data_source(config)) read_prompts(run);
  if (evaluates) {
    run.evaluation.emplace(config, run.text);
    notes.insert(notes.end(), run.evaluation->remarks().begin(), run.evaluation->remarks().end());
  }
  if (run.dataset && run.dataset->num_too_long() > 0) {
    notes.push_back(
        fmt::format("{} prompts are longer than --rollout-max-prompt-len and are left out",
                    run.dataset->num_too_long()));
  }
  // Rewards and filters that do not exist are found before networks are loaded.
  if (!config.has_users_reward()) make_score(config);
  if (!config::has_users_filter(config)) buffer::make_filter(config.dynamic_sampling_filter_path);
  const std::vector<std::string> eval_rewards =
      run.evaluation ? run.evaluation->own_rewards() : std::vector<std::string>();
  if (config.deterministic_schedule && !eval_rewards.empty()) {
    throw ConfigError(fmt::format(
        "--deterministic-schedule and custom_rm_path {} of an evaluation set: rounds do "
        "not wait for answers of plug-in hosts",
        eval_rewards.front()));
  }
  const bool draws = generates(config) && opens_door(config);
  if (draws) run.door = std::make_unique<EngineDoor>(config, run.text);
  if (draws || !config::users_functions(config).empty() || !eval_rewards.empty()) {
    const PluginPlaces places{
        .logs = run.folder.plugin_logs(),
        .save = run.folder.checkpoints(),
        .load = start.checkpoint ? start.checkpoint->directory.parent_path() : ""};
    run.plugins = std::make_unique<Plugins>(config, unknown, eval_rewards, places, run.door.get());
  }
  if (config::has_users_data_source(config)) {
    run.users_prompts = run.plugins->prompts(run.text);
    run.prompts.emplace(*run.users_prompts, order_of(config));
  }
  if (draws && run.evaluation) run.evaluation->draw_by(*run.plugins);
  if (trains(config))
    run.functions = std::make_unique<TrainerFunctions>(config, run.folder.plugin_logs(), 0);
}

void plan_schedule(Stations& run, const StartPoint& start) {
  const config::RunConfig& config = run.config;
  RunSchedule& schedule = run.schedule;
  schedule.num_steps = planned_rollouts(config, run.dataset);
  if (start.checkpoint) schedule.first_step = start.checkpoint->iteration + 1;
  if (config.start_rollout_id) schedule.first_step = *config.start_rollout_id;
  if (config.start_rollout_id.value_or(0) > 0 && schedule.first_step >= schedule.num_steps) {
    throw ConfigError(
        fmt::format("--start-rollout-id {}: nothing is left to do, the run has {} rollouts",
                    schedule.first_step, schedule.num_steps));
  }
  if (run.evaluation || config::has_users_evaluation(config))
    schedule.eval_interval = config.eval_interval;
  schedule.save_interval = config.save_interval;
  if (!config.num_rollout && run.dataset)
    schedule.rollouts_per_epoch = run.dataset->size() / config.rollout_batch_size;
  schedule.skips_first_evaluation = config.skip_eval_before_train;
  if (config.has_update_interval()) schedule.steps_per_update = config.update_weights_interval;
}

/// In tokens; 0: not known.
int64_t longest_prompt(const Stations& run) {
  return run.dataset ? run.dataset->longest_prompt() : 0;
}

void plan_memory(Stations& run, const model::Precision& precision,
                 const train::TrainConfig* trainer, bool is_taken) {
  const MemoryNeeds needs = memory_needs(run.config, *run.network, precision, trainer,
                                         generates(run.config), longest_prompt(run));
  run.memory.plan(run.config, needs, is_taken ? needs.train.resident() : needs.train.weights);
}

/// The ranks in other processes load while this one does.
std::unique_ptr<Trainers> start_ranks(const Stations& run, const StartPoint& start,
                                      const std::vector<std::string>& arguments) {
  if (!trains(run.config)) return std::make_unique<NoTrainers>();
  RankStart rank{.arguments = config::without_secrets(arguments),
                 .num_rollouts = run.schedule.num_steps,
                 .first_rollout = run.schedule.first_step,
                 .plugin_logs = run.folder.plugin_logs().string()};
  if (start.checkpoint) {
    rank.checkpoint = start.checkpoint->directory.string();
    rank.iteration = start.checkpoint->iteration;
    rank.loads_optimizer = !run.config.no_load_optim;
  }
  return start_trainers(run.config, std::move(rank), run.folder.worker_logs(), run.clock);
}

/// The trained network, its trainers, and the plan of who gets the device's memory.
void load_networks(Stations& run, const StartPoint& start,
                   const std::vector<std::string>& arguments, Notes& notes) {
  const config::RunConfig& config = run.config;
  const std::string directory =
      start.checkpoint ? start.checkpoint->directory.string() : config.hf_checkpoint;
  check_shape(config, model::read_model_config(directory));
  run.trainers = start_ranks(run, start, arguments);
  const model::Precision precision = model::precision_on(config.device, config.dtype);
  const comm::Mesh& mesh = run.trainers->connect();
  const bool has_whole = mesh.tp().is_alone() && mesh.pp().is_alone();
  run.memory.explain_shortage(Phase::kTrain, [&] {
    const bool is_copied = !has_whole && generates(config);
    run.network =
        model::load_network(directory, precision, is_copied ? comm::Mesh::single() : mesh);
    if (is_copied) run.part = model::load_network(directory, precision, mesh);
  });
  std::optional<train::TrainConfig> trainer;
  if (trains(config)) {
    trainer = make_train_config(config, run.schedule.num_steps);
    trainer->frozen = frozen_names(config, run.trained().weights(), mesh);
    run.functions->set_in(*trainer, run.schedule.first_step);
    plan_memory(run, precision, &*trainer, false);  // what does not fit is explained
    run.memory.explain_shortage(Phase::kTrain, [&] {
      run.trainers->open(run.trained(), *trainer, load_other_networks(config, precision, mesh));
    });
  }
  const auto note = [&notes](const std::string& line) { notes.push_back(line); };
  if (start.checkpoint) {
    if (trainer && !config.no_load_optim) run.trainers->restore(*start.checkpoint, note);
    run.memory.set_last_checkpoint(start.checkpoint->iteration);
    note(fmt::format("continuing after rollout {} of {}", start.checkpoint->iteration,
                     start.checkpoint->directory.string()));
  }
  plan_memory(run, precision, trainer ? &*trainer : nullptr, trainer.has_value());
  for (const std::string& line : run.memory.plan().lines()) note(line);
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
void open_records(Stations& run, const StartPoint& start, Notes& notes) {
  if (start.overwrites) remove_history(run.folder);
  // A process that died between its checkpoint and the link left the link behind, or none.
  if (start.checkpoint && start.is_own) run.folder.set_latest(start.checkpoint->directory);
  std::unique_ptr<buffer::Ledger> ledger =
      open_ledger(run.folder.ledger(), start.is_own ? start.checkpoint : std::nullopt);
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

/// Engines beside the trainer have a part of the cores for themselves.
int64_t engine_threads(const config::RunConfig& config) {
  if (config.shares_weights() || config.device != "cpu") return 0;
  if (config.rollout_num_threads > 0) return config.rollout_num_threads;
  const int64_t all = config.num_threads > 0 ? config.num_threads : at::get_num_threads();
  return std::max<int64_t>(1, all / 2);
}

/// What the engines call the weights that the run begins with.
WeightVersion first_version(const Stations& run, const StartPoint& start) {
  const RunSchedule& schedule = run.schedule;
  const json::value* saved =
      start.checkpoint ? start.checkpoint->run.if_contains("weight_version") : nullptr;
  // Also where `slime train` goes on: groups that wait have tokens of those versions.
  if (saved == nullptr || !saved->is_int64())
    return schedule.first_step / schedule.steps_per_update;
  const json::value* published = start.checkpoint->run.if_contains("is_published");
  const bool was_published = published != nullptr && published->is_bool()
                                 ? published->get_bool()
                                 : schedule.publishes_after(start.checkpoint->iteration);
  return RunSchedule::version_from(saved->get_int64(), was_published);
}

/// An engine beside the trainer has weights of its own; the first update makes them the trainer's.
std::unique_ptr<Engines> engine_beside(Stations& run, const engine::EngineConfig& config,
                                       WeightVersion version, engine::RunningRequests running) {
  std::unique_ptr<model::Network> own;
  run.memory.explain_shortage(Phase::kGenerate, [&] {
    own = make_blank_copy(*run.network, model::precision_on(run.config.device, run.config.dtype));
  });
  return std::make_unique<EngineBeside>(*run.network, std::move(own), config, version, running,
                                        run.memory, run.clock);
}

std::unique_ptr<Engines> engine_workers(Stations& run, const std::vector<std::string>& arguments,
                                        WeightVersion version, engine::RunningRequests running) {
  const config::RunConfig& config = run.config;
  model::Precision precision = model::precision_on(config.device, config.dtype);
  if (run.memory.plan().publishes_on_host())
    precision = {.weights = precision.weights, .activations = at::kFloat};
  std::unique_ptr<model::Network> published;
  run.memory.explain_shortage(Phase::kTrain,
                              [&] { published = make_blank_copy(*run.network, precision); });
  EngineWorkersConfig workers = engine_workers_config(
      config,
      {.arguments = config::without_secrets(arguments),
       .longest_prompt = longest_prompt(run),
       .num_threads =
           static_cast<int>(std::max<int64_t>(1, run.engine_threads / config.num_engine_workers))},
      run.folder.worker_logs(), running);
  workers.on_activity = [&timeline = run.timeline](int index, engine::Activity activity) {
    timeline.enter(engine_lane(index), engine_phase(activity));
  };
  return std::make_unique<EngineWorkers>(std::move(workers), *run.network, std::move(published),
                                         version, run.clock);
}

void start_engines(Stations& run, const StartPoint& start,
                   const std::vector<std::string>& arguments) {
  if (!generates(run.config)) {
    run.engines = std::make_unique<NoEngines>();
    return;
  }
  const MemoryPlan& plan = run.memory.plan();
  if (plan.offloads() && trains(run.config)) {
    run.trainers->release_memory();
    run.memory.release_unused();  // the engine maps pages, which the allocator's own are not
  }
  engine::EngineConfig config = make_engine_config(run.config, run.text, plan.kv_cache_bytes());
  config.num_threads = run.engine_threads;
  config.stages_weights = !run.config.shares_weights();
  config.on_activity = [&timeline = run.timeline](engine::Activity now) {
    timeline.enter(engine_lane(0), engine_phase(now));
  };
  const WeightVersion version = first_version(run, start);
  const auto running = run.config.train_async && run.config.kv_on_update == "keep"
                           ? engine::RunningRequests::kKeep
                           : engine::RunningRequests::kRecompute;
  if (run.config.num_engine_workers > 0) {
    run.engines = engine_workers(run, arguments, version, running);
  } else if (has_engine_on_each_rank(run.config)) {
    const int64_t ranks = run.config.world_size();
    if (run.config.device == "cpu")
      config.num_threads = std::max<int64_t>(1, at::get_num_threads() / ranks);
    run.engines = std::make_unique<RankEngines>(
        *run.trainers,
        EngineStart{.arguments = {},
                    .kv_cache_bytes = plan.kv_cache_bytes(),
                    .num_threads = static_cast<int>(config.num_threads)},
        *run.network, config, version, running, plan.offloads(), run.memory, run.clock);
  } else if (run.config.shares_weights()) {
    run.engines = std::make_unique<EngineHere>(*run.network, config, version, running,
                                               plan.offloads(), run.memory, run.clock);
  } else {
    run.engines = engine_beside(run, config, version, running);
  }
  if (run.door) run.door->open(run.engines->client(), run.engines->max_request_tokens());
}

/// The trainer's are what the engine leaves; asked before the first kernel runs.
void share_out_threads(Stations& run) {
  const int64_t given = run.config.num_threads;
  const int64_t all = given > 0 ? given : at::get_num_threads();
  run.engine_threads = engine_threads(run.config);
  const int64_t trainer = std::max<int64_t>(1, all - run.engine_threads);
  if (given > 0 || trainer < all) at::set_num_threads(static_cast<int>(trainer));
}

json::object describe(const Stations& run, const StartPoint& start, const json::object& unknown) {
  return {{"run_id", start.run_id},
          {"model", run.config.hf_checkpoint},
          {"model_type", run.network->config().model_type},
          {"num_parameters", run.network->weights().num_parameters()},
          {"dtype", run.config.dtype},
          {"num_rollout", run.schedule.num_steps},
          {"loss_type", run.config.loss_type},
          {"trainer_threads", at::get_num_threads()},
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
        std::make_unique<RowSource>(config, run.text, *run.prompts, *run.fates, *run.recorder);
  } else {
    run.rollout = std::make_unique<RolloutSource>(config, *run.text.tokenizer, *run.prompts,
                                                  *run.engines, *run.trainers, *run.fates,
                                                  run.memory, *run.recorder, run.plugins.get());
    if (config::has_users_rollout(config)) {
      run.function = std::make_unique<FunctionSource>(
          config, *run.prompts, *run.engines, *run.trainers, *run.fates, run.memory, *run.recorder,
          *run.plugins, std::exchange(run.drawn, std::nullopt));
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
  if (!run.evaluation || !evaluates_beside(run.config)) return;
  engine::EngineConfig engine =
      make_engine_config(run.config, run.text, run.memory.plan().eval_cache_bytes());
  engine.max_running_requests = evaluation_requests(run.config);
  if (run.engine_threads > 0) engine.num_threads = std::max<int64_t>(1, run.engine_threads / 4);
  run.beside = std::make_unique<EvaluationBeside>(
      *run.evaluation, run.config, std::move(engine),
      scoring_hooks(run.config, *run.text.tokenizer, run.plugins.get()), run.memory, run.timeline,
      run.clock);
}

/// An evaluation that a process took with it is made again, with the weights that the run goes on
/// with. The rows of the metrics are those that count.
void find_lost_evaluation(Stations& run, const StartPoint& start) {
  if (run.beside == nullptr || !start.checkpoint || !start.is_own) return;
  const std::optional<int64_t> due = run.schedule.last_evaluation_due();
  if (!due) return;
  const std::optional<int64_t> done = last_evaluated_step(run.folder.metrics());
  run.schedule.lost_evaluation = !done || *done < std::max<int64_t>(*due, 0);
}

}  // namespace

Stations::Stations(config::RunConfig flags, const Clock& clock_in)
    : config(std::move(flags)),
      clock(clock_in),
      folder(config),
      timeline(folder.timeline(), clock_in),
      memory(config.device != "cpu", config.hf_checkpoint, folder.checkpoints()) {}

/// The recorder goes before the engines.
Stations::~Stations() {
  if (engines) engines->tell_by(nullptr);
}

std::unique_ptr<Stations> build_stations(config::ParsedFlags flags, const Clock& clock) {
  check_devices(flags.config);
  auto run = std::make_unique<Stations>(std::move(flags.config), clock);
  share_out_threads(*run);
  Notes notes = std::move(flags.warnings);
  if (!run->folder.is_locked())
    notes.push_back(
        fmt::format("{}: its file system has no locks; a second run in the same folder "
                    "would not be noticed",
                    run->folder.root().string()));
  const StartPoint start = choose_start(
      run->config, run->folder, [&notes](const std::string& line) { notes.push_back(line); });
  read_data(*run, start, flags.unknown, notes);
  plan_schedule(*run, start);
  load_networks(*run, start, flags.arguments, notes);
  open_records(*run, start, notes);
  start_engines(*run, start, flags.arguments);
  const json::object description = describe(*run, start, flags.unknown);
  run->folder.write_run_json(description);
  run->recorder =
      std::make_unique<Recorder>(run->config, run->folder, run->schedule, *run->text.tokenizer,
                                 description, run->memory, *run->fates, run->timeline, clock);
  for (const std::string& line : notes) run->recorder->message(line);
  run->engines->tell_by(
      [&recorder = *run->recorder](const std::string& text) { recorder.message(text); });
  if (run->plugins) {
    run->plugins->tell_by(
        [&recorder = *run->recorder](const std::string& text) { recorder.message(text); });
  }
  if (start.checkpoint) run->recorder->saved(start.checkpoint->iteration);
  make_source(*run);
  start_evaluation_beside(*run);
  find_lost_evaluation(*run, start);
  run->checkpoints = std::make_unique<Checkpoints>(
      run->config, run->folder, start.run_id, run->text.today, *run->prompts, *run->trainers,
      *run->fates, *run->engines, run->rollout.get(), run->function.get(), run->users_prompts.get(),
      run->memory, *run->recorder);
  run->interrupt.emplace();
  return run;
}

}  // namespace slime::loop
