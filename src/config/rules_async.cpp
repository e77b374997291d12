// Generation beside training.

#include <fmt/format.h>

#include <algorithm>

#include "config/flag_rows.h"
#include "config/rules.h"
#include "config/users_functions.h"

namespace slime::config {

namespace {

/// Flags that say something about generation beside training, in a run without it.
void refuse_without_async(const ParsedFlags& flags, Problems& problems) {
  for (const FlagRow& row : flag_table()) {
    const bool is_of_async = row.counts && row.counts->holds == kAsyncRun.holds;
    problems.require(
        !is_of_async || row.name == "--max-staleness" || !flags.gives(row.name),
        fmt::format("{}: is about generation beside training; use slime train-async", row.name));
  }
  problems.require(
      !flags.gives("--rollout-num-threads") || flags.config.num_engine_workers > 0,
      "--rollout-num-threads: is about engines beside the trainer; use slime train-async or "
      "--rollout-num-gpus");
  problems.require(!flags.gives("--max-staleness") || flags.config.max_staleness.value_or(0) == 0,
                   fmt::format("--max-staleness {}: slime train is always on policy; use slime "
                               "train-async",
                               flags.config.max_staleness.value_or(0)));
}

/// --deterministic-schedule and what belongs to it.
void check_schedule(ParsedFlags& flags, Problems& problems) {
  RunConfig& config = flags.config;
  if (!config.deterministic_schedule) {
    for (const std::string_view flag : {"--schedule-round", "--schedule-train-rounds"}) {
      problems.require(!flags.gives(flag),
                       fmt::format("{}: is about rounds; add --deterministic-schedule", flag));
    }
    return;
  }
  problems.require(config.schedule_round >= 1,
                   fmt::format("--schedule-round {}: should be at least 1", config.schedule_round));
  problems.require(config.schedule_train_rounds >= 0 && config.schedule_train_rounds <= 1'000'000,
                   fmt::format("--schedule-train-rounds {}: should be between 0 and 1000000",
                               config.schedule_train_rounds));
  problems.require(
      config.kv_on_update != "drop",
      "--deterministic-schedule and --kv-on-update drop: between two rounds nothing is in "
      "the engine, so nothing of it waits; use recompute");
  problems.require(
      !flags.says("--kv-on-update") || config.kv_on_update != "keep",
      fmt::format("--deterministic-schedule and {}: between two rounds nothing is in the engine, "
                  "so keys and values are computed again behind an update",
                  flags.how_said("--kv-on-update", config.kv_on_update)));
  config.kv_on_update = "recompute";
  for (const UsersFunction& each : users_functions(config)) {
    problems.require(!each.is_of_samples,
                     fmt::format("--deterministic-schedule and {}: rounds do not wait for answers "
                                 "of plug-in hosts{}",
                                 each.flag, each.hook == "reward" ? "; use --rm-type" : ""));
  }
  if (!config.colocate) return;
  problems.require(
      !flags.gives("--schedule-train-rounds") || config.schedule_train_rounds == 0,
      fmt::format("--colocate and --schedule-train-rounds {}: nothing is sampled while the trainer "
                  "has the device",
                  config.schedule_train_rounds));
  config.schedule_train_rounds = 0;
}

bool has_correction(const RunConfig& config) {
  return config.use_tis || config.use_rs || config.use_opsm ||
         !config.custom_tis_function_path.empty();
}

/// Published scripts give train_async.py to runs that generate nothing: there both commands are the
/// same. Which flag says so; empty: the run generates.
std::string without_generation(const RunConfig& config) {
  if (config.trains_on_rows()) return "--loss-type " + config.loss_type;
  if (!config.load_debug_rollout_data.empty()) return "--load-debug-rollout-data";
  return config.debug_train_only ? "--debug-train-only" : "";
}

/// Whether generation goes on while the trainer trains because a command says so in the original's
/// words, which know no bound on age.
bool is_originals_async(const RunConfig& config) {
  return names_fully_async(config) ||
         (config.flush_cache_interval != 1 && !has_users_rollout(config));
}

/// What an update cannot do that leaves requests where they are.
void refuse_beside_flushes(const ParsedFlags& flags, Problems& problems) {
  const RunConfig& config = flags.config;
  const auto refuse = [&](bool is_so, std::string_view flag, std::string_view why) {
    problems.require(!is_so, fmt::format("--flush-cache-interval {} and {}: {}",
                                         config.flush_cache_interval.get(), flag, why));
  };
  const std::string_view turns =
      "requests go on over an update while the trainer has devices of its own; leave one out";
  refuse(config.colocate, "--colocate", turns);
  refuse(config.offload_rollout, "--offload-rollout", turns);
  refuse(flags.gives("--release-train"), "--release-train", turns);
  const std::string_view nothing = "no weights change under running requests in such a run";
  refuse(config.debug_train_only, "--debug-train-only", nothing);
  refuse(config.debug_rollout_only, "--debug-rollout-only", nothing);
  refuse(!config.load_debug_rollout_data.empty(), "--load-debug-rollout-data", nothing);
  refuse(config.deterministic_schedule, "--deterministic-schedule",
         "between two rounds nothing is in the engine; leave one out");
  refuse(flags.says("--update-mode") && config.update_mode != "suspend",
         flags.how_said("--update-mode", config.update_mode),
         "it says itself which updates interrupt; leave one out");
  refuse(flags.says("--kv-on-update") && config.kv_on_update != "keep",
         flags.how_said("--kv-on-update", config.kv_on_update),
         "between two flushes keys and values are kept; leave one out");
}

/// --flush-cache-interval chooses the loop, and what an update of the engines does.
void choose_schedule(ParsedFlags& flags, Problems& problems) {
  RunConfig& config = flags.config;
  if (names_fully_async(config)) config.train_async = true;
  const int64_t interval = config.flush_cache_interval;
  if (!flags.gives("--flush-cache-interval")) return;
  if (has_users_rollout(config) || config.trains_on_rows()) {
    flags.warnings.push_back(fmt::format("--flush-cache-interval {}: has no effect, {}", interval,
                                         config.trains_on_rows()
                                             ? "nothing is generated"
                                             : "requests are those of the --rollout-function-path; "
                                               "--update-mode says what an update does"));
    return;
  }
  if (interval == 1) {
    if (!config.train_async) return;  // nothing runs at an update
    problems.require(!flags.says("--update-mode") || config.update_mode == "interrupt",
                     fmt::format("--flush-cache-interval 1 and {}: each update interrupts; leave "
                                 "one out",
                                 flags.how_said("--update-mode", config.update_mode)));
    config.update_mode = "interrupt";
    return;
  }
  refuse_beside_flushes(flags, problems);
  const bool changes = !config.train_async;
  config.train_async = true;
  flags.warnings.push_back(fmt::format(
      "--flush-cache-interval {}: {}{} others pause them and keep their KV cache", interval,
      changes ? "generation goes on while the trainer trains (slime train-async); " : "",
      interval > 1 ? fmt::format("updates to versions 1, {}, {}, ... interrupt requests, the",
                                 interval + 1, 2 * interval + 1)
                   : std::string("the first update interrupts requests, the")));
  if (config.has_external_engines()) {
    flags.warnings.emplace_back(
        "--flush-cache-interval and --rollout-external-engine-addrs: every update interrupts the "
        "servers' requests, which then go on from their tokens; only so is it known which weights "
        "drew a token");
  }
}

/// What the original does where nothing is said: any age, in the order of finishing.
void complete_unbounded(ParsedFlags& flags) {
  RunConfig& config = flags.config;
  config.max_staleness = kAnyAge;
  if (!flags.says("--async-order")) config.async_order = "finish";
  if (!config.async_buffer_size) {
    const int64_t batch = std::max<int64_t>(1, config.rollout_batch_size);
    config.async_buffer_size = std::max<int64_t>(1, config.most_groups_of_any_age() / batch);
  }
  flags.warnings.push_back(fmt::format(
      "responses of any age are trained, in the order in which they finish, as in the original; "
      "--max-staleness 1 is safer: it trains none that is more than one update older than the "
      "weights{}",
      has_correction(config) || config.use_rollout_logprobs
          ? ""
          : ". Correct for older ones with --use-tis, --use-rs or --use-opsm"));
}

/// How many finished rollouts the bound on age lets wait, where --async-buffer-size hopes for more.
void note_small_bound(ParsedFlags& flags) {
  const RunConfig& config = flags.config;
  if (!flags.says("--async-buffer-size") || flags.says("--max-staleness")) return;
  const int64_t most =
      (*config.max_staleness + 1) * config.update_weights_interval - 1;  // one is being trained
  if (*config.async_buffer_size <= std::max<int64_t>(1, most)) return;
  flags.warnings.push_back(fmt::format(
      "{}: no more than {} finished rollout{} will wait, because --max-staleness {} starts nothing "
      "that would be older when it is trained; for {} add --max-staleness {}",
      flags.how_said("--async-buffer-size", std::to_string(*config.async_buffer_size)),
      std::max<int64_t>(1, most), most > 1 ? "s" : "", *config.max_staleness,
      *config.async_buffer_size, *config.async_buffer_size));
}

}  // namespace

void check_async(ParsedFlags& flags, Problems& problems) {
  RunConfig& config = flags.config;
  choose_schedule(flags, problems);
  problems.require(config.update_weights_interval >= 1,
                   fmt::format("--update-weights-interval {}: should be at least 1",
                               config.update_weights_interval));
  if (const std::string flag = without_generation(config); config.train_async && !flag.empty()) {
    config.train_async = false;
    flags.warnings.push_back(
        fmt::format("slime train-async and {}: nothing is generated, so nothing runs beside the "
                    "trainer; the run is that of slime train",
                    flag));
  }
  if (!config.train_async) {
    refuse_without_async(flags, problems);
    check_schedule(flags, problems);
    if (flags.gives("--update-weights-interval") && config.update_weights_interval > 1 &&
        !config.has_update_interval()) {
      flags.warnings.push_back(
          "--update-weights-interval: slime train updates the engine after every rollout");
    }
    return;
  }
  problems.require(!config.debug_rollout_only,
                   "slime train-async and --debug-rollout-only: nothing is trained beside; use "
                   "slime train");
  if (!config.max_staleness && is_originals_async(config)) complete_unbounded(flags);
  if (!config.max_staleness) config.max_staleness = 1;
  if (!config.async_buffer_size) config.async_buffer_size = 2;
  note_small_bound(flags);
  problems.require(
      *config.max_staleness >= 0 && *config.max_staleness <= 1'000'000,
      fmt::format("--max-staleness {}: should be between 0 and 1000000", *config.max_staleness));
  problems.require(*config.async_buffer_size >= 1 && *config.async_buffer_size <= 1'000'000,
                   fmt::format("--async-buffer-size {}: should be between 1 and 1000000",
                               *config.async_buffer_size));
  problems.require(*config.max_staleness > 0 || config.update_weights_interval == 1,
                   fmt::format("--max-staleness 0 and --update-weights-interval {}: on policy is "
                               "an update after every rollout",
                               config.update_weights_interval));
  problems.require(!config.colocate || config.update_weights_interval == 1,
                   fmt::format("--colocate and --update-weights-interval {}: trainer and engine "
                               "share one set of weights, each rollout is an update",
                               config.update_weights_interval));
  problems.require(!config.colocate || !flags.gives("--rollout-num-threads"),
                   fmt::format("--colocate and --rollout-num-threads {}: trainer and engine take "
                               "turns, each with all of --num-threads",
                               config.rollout_num_threads));
  problems.require(
      config.rollout_num_threads >= 0,
      fmt::format("--rollout-num-threads {}: should not be negative", config.rollout_num_threads));
  problems.require(
      config.staleness_policy != "correct" || has_correction(config),
      "--staleness-policy correct: trains tokens of older weights than --max-staleness says; it "
      "needs a correction: --use-tis, --use-rs, --use-opsm or --custom-tis-function-path");
  if (*config.max_staleness > 1 && config.bounds_age() && !has_correction(config) &&
      !config.use_rollout_logprobs) {
    flags.warnings.push_back(fmt::format(
        "--max-staleness {}: tokens of weights so old are trained without a correction, "
        "which may collapse (on the sums of examples/ from 0.69 to 0.05): add "
        "--use-tis, --use-rs or --use-opsm, or leave it at 1",
        *config.max_staleness));
  }
  problems.require(
      !flags.gives("--kv-on-update") || config.update_mode == "suspend",
      fmt::format("--kv-on-update {} and {}: only suspended requests have keys and "
                  "values when the weights change",
                  config.kv_on_update, flags.how_said("--update-mode", config.update_mode)));
  check_schedule(flags, problems);
  const bool offloads = config.offload_rollout;
  problems.require(!offloads || config.colocate,
                   "--offload-rollout and slime train-async: the cache is in use while the trainer "
                   "trains; add --colocate to take turns");
  problems.require(
      !offloads || !flags.gives("--kv-on-update") || config.kv_on_update != "keep",
      "--offload-rollout and --kv-on-update keep: a cache that gives its memory back keeps "
      "nothing");
  if (!config.colocate) config.no_offload_rollout = true;
  if (flags.says("--staleness-policy") && config.staleness_policy != "wait" &&
      config.async_order == "dispatch") {
    flags.warnings.push_back(fmt::format(
        "--staleness-policy {}: in the order of dispatch no group becomes too old, except by a "
        "restart with other flags; --async-order finish is what it is for",
        config.staleness_policy));
  }
  if (flags.gives("--partial-rollout") && config.custom_generate_function_path.empty() &&
      !has_users_rollout(config)) {
    flags.warnings.push_back(
        "--partial-rollout has no effect: slime train-async keeps what is begun and not finished "
        "anyway");
  }
  if (!has_users_rollout(config) && flags.gives("--over-sampling-batch-size") &&
      config.over_sampling_batch_size.value_or(0) > config.rollout_batch_size) {
    flags.warnings.push_back(
        "--over-sampling-batch-size: with slime train-async --max-staleness says how many groups "
        "are under way; none is thrown away");
  }
}

}  // namespace slime::config
