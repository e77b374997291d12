#include "loop/start_point.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "config/parse_flags.h"
#include "core/error.h"
#include "loop/changed_settings.h"
#include "loop/session_settings.h"
#include "model/adapter_files.h"
#include "model/config.h"
#include "model/foreign_checkpoint.h"
#include "report/run_history.h"
#include "roles/run_adapters.h"
#include "setup/named_model.h"
#include "train/checkpoint_directory.h"
#include "train/run_parts.h"

namespace slime::loop {

namespace fs = std::filesystem;

namespace {

bool is_same_folder(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::weakly_canonical(a / "", error) == fs::weakly_canonical(b / "", error) && !error;
}

/// Whether `path` is, links followed, one of the checkpoints in `root`, or the folder of them all.
bool names_checkpoint_of(const fs::path& root, const fs::path& path) {
  if (is_same_folder(path, root)) return true;
  const auto iterations = train::checkpoint_iterations(root);
  return std::ranges::any_of(iterations, [&](int64_t iteration) {
    return is_same_folder(path, root / train::checkpoint_name(iteration));
  });
}

/// Whether a folder is, links followed, in one of the run's branches but the first.
bool is_in_branch(const report::BranchPlace& base, const fs::path& path) {
  std::error_code unknown;
  const std::string given = (fs::weakly_canonical(path, unknown) / "").string();
  for (const std::string& name : report::branch_names(base)) {
    if (name == report::kMainBranch) continue;
    const report::BranchPlace place = report::place_of_branch(base, name);
    for (const fs::path& folder : {place.root, place.checkpoints})
      if (given.starts_with((fs::weakly_canonical(folder, unknown) / "").string())) return true;
  }
  return false;
}

/// What would work in the place of a --load that has no checkpoint.
std::string advice_for(const config::RunConfig& config, const fs::path& given) {
  if (fs::exists(given / "COMMITTED")) {
    // Links followed: a run's "latest" is one.
    return fmt::format("this is one checkpoint: give its folder, --load {}",
                       fs::canonical(given).parent_path().string());
  }
  if (const std::string foreign = model::foreign_checkpoint(given, config.hf_checkpoint);
      !foreign.empty())
    return "it is " + foreign;
  if (!train::checkpoint_iterations(given / "checkpoints").empty())
    return fmt::format("there are some in --load {}", (given / "checkpoints").string());
  if (fs::exists(given / "config.json")) {
    try {
      model::read_model_config(given);
    } catch (const std::exception& error) {
      return fmt::format("this is a model directory that cannot be read: {}", error.what());
    }
    return fmt::format("this is a model directory: give it as --hf-checkpoint {}", given.string());
  }
  if (!fs::exists(given)) return "there is no such folder; without --load the run starts anew";
  return "without --load the run starts anew";
}

/// That of one step. Throws ConfigError where it is not there or damaged.
train::Checkpoint checkpoint_of_step(const config::RunConfig& config, const fs::path& root,
                                     int64_t step) {
  const fs::path directory = root / train::checkpoint_name(step);
  const auto steps = train::committed_iterations(root);
  if (std::ranges::find(steps, step) == steps.end()) {
    if (steps.empty() && fs::exists(root)) {
      throw ConfigError(fmt::format("--load {}: has no checkpoint of rollout {}; {}", root.string(),
                                    step, advice_for(config, root)));
    }
    throw ConfigError(
        fmt::format("--load {}: has no checkpoint of rollout {}; there are: {}", root.string(),
                    step, steps.empty() ? "none" : fmt::format("{}", fmt::join(steps, ", "))));
  }
  if (const std::string damage = train::checkpoint_damage(directory); !damage.empty())
    throw ConfigError(fmt::format("{}: {}", directory.string(), damage));
  return train::read_checkpoint(directory, step);
}

/// What --load, which is another folder than the run's own, has: a checkpoint to go on from, one to
/// take weights of, or a model directory. False: nothing, and the run begins as without it.
bool load_from(const config::RunConfig& config, const BranchChoice& choice, StartPoint& start,
               const train::Warn& warn) {
  const fs::path given = choice.elsewhere.empty() ? config.load.get() : choice.elsewhere;
  std::optional<train::Checkpoint> checkpoint;
  const bool is_one = fs::exists(given / "COMMITTED");
  if (choice.step) {
    checkpoint = checkpoint_of_step(config, given, *choice.step);
  } else if (is_one && config.finetune) {
    const std::string damage = train::checkpoint_damage(given);
    if (!damage.empty()) throw ConfigError(fmt::format("--load {}: {}", config.load, damage));
    checkpoint = train::read_checkpoint(given, 0);
  } else if (!is_one && setup::is_model_directory(config.load)) {
    warn(fmt::format("--load {}: a model directory: the run begins at rollout 0 with its weights",
                     config.load));
    start.weights = config.load;
    return true;
  } else {
    if (const std::string foreign = model::foreign_checkpoint(given, config.hf_checkpoint);
        !foreign.empty())
      throw ConfigError(fmt::format("--load {}: is {}", config.load, foreign));
    if (!is_one) checkpoint = train::find_checkpoint(given, warn);
  }
  if (!checkpoint) {
    const bool has_other_weights =
        !config.ref_load.empty() && config.ref_load != config.hf_checkpoint;
    if (has_other_weights && !is_one) {
      warn(fmt::format("--load {}: holds no checkpoint; the run begins anew", config.load));
      return false;
    }
    throw ConfigError(fmt::format("--load {}: holds no checkpoint (a folder iter_NNNNNNN); {}",
                                  given.string(), advice_for(config, given)));
  }
  if (!config.finetune) {
    start.checkpoint = std::move(checkpoint);
    return true;
  }
  start.weights = checkpoint->directory.string();
  start.left_out = train::kFinetune;
  const config::RunConfig& of_critic = config.critic != nullptr ? *config.critic : config;
  if (!of_critic.critic_load.empty()) start.left_out |= train::kCriticLoad;
  warn(
      fmt::format("--finetune: the run begins at rollout 0 with the weights of {}", start.weights));
  start.finetuned = std::move(checkpoint);
  return true;
}

/// How the settings of the checkpoint differ from these is told; another experiment is refused.
void compare_settings(const config::RunConfig& config, StartPoint& start, const train::Warn& warn) {
  if (!start.checkpoint) return;
  const json::value* before = start.checkpoint->run.if_contains("settings");
  if (before == nullptr || !before->is_object()) return;
  const auto changes = changed_settings(before->get_object(), settings_of(config));
  const std::string where = start.checkpoint->directory.filename().string();
  check_experiment(changes, config, where);
  for (const std::string& line : table_of(changes, where)) warn(line);
  start.left_out |= left_out_by(changes);
}

/// A queue has one run.
void check_run_of_queue(const config::RunConfig& config, const StartPoint& start) {
  if (!start.checkpoint || config.rollout_data_transport != "straw") return;
  const json::value* name = start.checkpoint->run.if_contains("queue_run_id");
  if (name == nullptr || !name->is_string() ||
      std::string_view(name->get_string()) == config.rollout_queue_run_id.get())
    return;
  throw ConfigError(fmt::format(
      "--rollout-queue-run-id {}: {} is of the run {}; give that name, or another --run-dir",
      config.rollout_queue_run_id, start.checkpoint->directory.string(),
      std::string_view(name->get_string())));
}

/// Checkpoints of adapters have no other weights: those are where the run began.
void take_adapter(const config::RunConfig& config, StartPoint& start) {
  const bool has_adapter = model::has_adapter(start.weights);
  const bool is_checkpoint = start.checkpoint || start.finetuned;
  if (is_checkpoint && has_adapter != config.trains_adapters()) {
    throw ConfigError(fmt::format(
        "{} {}; {}", start.weights,
        has_adapter ? "holds an adapter" : "holds all weights of a model, and no adapter",
        has_adapter ? "train it with the --lora-rank of that run"
                    : "give it as --hf-checkpoint to train an adapter beside it"));
  }
  if (!has_adapter) return;
  start.adapter = start.weights;
  start.weights = roles::base_directory(config);
}

/// Training in fewer bits goes on with the master weights.
void check_precision(const config::RunConfig& config, const StartPoint& start) {
  const bool has_masters = config.dtype != "float32" && config.dtype != "float64";
  const bool takes_them =
      train::is_carried(train::row_of(train::RunPart::kOptimizer), start.left_out);
  if (has_masters && takes_them && !config.trains_adapters())
    train::check_has_masters(start.checkpoint->directory);
}

/// What follows from the flags once it is known where the run begins.
StartPoint completed(const config::RunConfig& config, const BranchChoice& choice, StartPoint start,
                     const train::Warn& warn) {
  if (start.checkpoint) {
    start.weights = start.checkpoint->directory.string();
    check_run_of_queue(config, start);
    if (config.no_load_optim && !choice.is_of_load) start.left_out |= train::kNoLoadOptim;
    compare_settings(config, start, warn);
    check_precision(config, start);
  }
  if (start.weights.empty()) start.weights = setup::beginning_directory(config, warn);
  take_adapter(config, start);
  return start;
}

/// Flags that differ between two run.json, apart from those that say where the run's folder is.
std::vector<std::string> differing_flags(const json::object& before, const json::object& now) {
  static constexpr std::array<std::string_view, 3> kPlaces{"--run-dir", "--save", "--overwrite"};
  std::vector<std::string> names;
  const auto compare = [&](const json::object& one, const json::object& other) {
    for (const auto& member : one) {
      const std::string name(member.key());
      if (std::ranges::find(kPlaces, name) != kPlaces.end()) continue;
      const json::value* same = other.if_contains(name);
      if ((same == nullptr || *same != member.value()) &&
          std::ranges::find(names, name) == names.end())
        names.push_back(name);
    }
  };
  compare(before, now);
  compare(now, before);
  return names;
}

/// Why the run in the folder is not this one, dead before its first checkpoint; empty: it is.
std::string why_not_begun_again(const config::RunConfig& config,
                                const report::RunHistory& history) {
  if (history.has_saved) return "it has saved a checkpoint before";
  if (config.debug_rollout_only) return "a run with --debug-rollout-only saves no checkpoint";
  const json::value* flags = history.run.if_contains("flags");
  if (flags == nullptr || !flags->is_object()) return "its run.json does not say what run it was";
  auto names = differing_flags(flags->get_object(), config::changed_flags(config));
  // What a session has of a run are generated steps, whoever trains them (docs/resume.md).
  if (!config.rollout_session_id.get().empty())
    std::erase_if(names, [](const auto& name) { return may_differ_before_checkpoint(name); });
  return names.empty() ? "" : fmt::format("its flags differ: {}", fmt::join(names, ", "));
}

/// Whether a session's engines may have generated steps of that run, of which RUN_DIR has the ledger alone.
bool may_have_steps_elsewhere(const config::RunConfig& config, const report::RunHistory& history) {
  const json::value* flags = history.run.if_contains("flags");
  const bool had_session = flags != nullptr && flags->is_object() &&
                           flags->get_object().contains("--rollout-session-id");
  return history.has_ledger && (had_session || !config.rollout_session_id.get().empty());
}

/// What --overwrite removes, in words: that of the run, and each of its branches.
std::string deletions(const report::RunFolder& folder, const report::RunHistory& history) {
  std::string all = history.describe();
  std::vector<std::string> branches;
  for (const std::string& name : report::branch_names(folder.base())) {
    if (name == report::kMainBranch) continue;
    const auto steps =
        train::checkpoint_iterations(report::place_of_branch(folder.base(), name).checkpoints);
    branches.push_back(steps.empty() ? name
                                     : fmt::format("{} (checkpoints up to {})", name,
                                                   train::checkpoint_name(steps.back())));
  }
  if (branches.empty()) return all;
  return fmt::format("{}{}branch{} {}", all, all.empty() ? "" : ", and ",
                     branches.size() == 1 ? "" : "es", fmt::join(branches, ", "));
}

void check_overwrite(const config::RunConfig& config, const report::RunFolder& folder,
                     const report::RunHistory& history) {
  std::vector<std::string> problems;
  const fs::path& own = folder.checkpoints();
  for (const auto& [flag, path] :
       {std::pair{"--load", config.load}, std::pair{"--hf-checkpoint", config.hf_checkpoint},
        std::pair{"--ref-load", config.ref_load}, std::pair{"--critic-load", config.critic_load},
        std::pair{"--opd-teacher-load", config.opd_teacher_load}}) {
    if (!path.empty() && (names_checkpoint_of(own, path) || is_in_branch(folder.base(), path))) {
      problems.push_back(fmt::format(
          "--overwrite deletes the checkpoints in {}, which {} {} needs; give another --run-dir",
          own.string(), flag, path));
    }
  }
  for (const int64_t iteration : history.checkpoints) {
    const fs::path directory = own / train::checkpoint_name(iteration);
    std::string owner;
    try {
      owner = report::run_id_of(train::read_checkpoint(directory, iteration).run);
    } catch (const std::exception&) {
      continue;  // damaged: nobody's
    }
    if (!owner.empty() && owner != report::run_id_of(history.run)) {
      problems.push_back(
          fmt::format("--overwrite: {} is a checkpoint of another run than that in {}; give "
                      "another --save, or remove it",
                      directory.string(), folder.root().string()));
      break;
    }
  }
  if (!problems.empty()) throw ConfigError(problems);
}

}  // namespace

namespace {

StartPoint find_start(const config::RunConfig& config, const report::RunFolder& folder,
                      const BranchChoice& choice, const train::Warn& warn) {
  const report::RunHistory history = report::read_history(folder);
  StartPoint start;
  if (config.overwrite) {
    check_overwrite(config, folder, history);
    if (!config.load.empty()) load_from(config, choice, start, warn);
    if (const std::string all = deletions(folder, history); !all.empty())
      warn(fmt::format("--overwrite deletes what is in {}: {}", folder.root().string(), all));
    start.overwrites = true;
    start.run_id = report::make_run_id();
    return start;
  }
  const fs::path& own = folder.checkpoints();
  const bool loads_own = choice.is_own;
  if (loads_own) {
    // Of a branch that a dry run does not make, the step is not the newest.
    start.checkpoint = choice.step ? checkpoint_of_step(config, own, *choice.step)
                                   : train::find_checkpoint(own, warn);
    if (start.checkpoint && config.finetune && !choice.is_of_load) {
      throw ConfigError(
          fmt::format("--finetune: begins at rollout 0, and {} has checkpoints of its own, which "
                      "it would write "
                      "over; leave --finetune out to go on after {}, or give another --run-dir "
                      "(and --save) and "
                      "--load {}",
                      own.string(), start.checkpoint->directory.filename().string(), own.string()));
    }
  } else {
    load_from(config, choice, start, warn);
  }
  const std::string known_id = report::run_id_of(history.run);
  if (loads_own && start.checkpoint) {
    const std::string owner = report::run_id_of(start.checkpoint->run);
    start.is_own = (history.has_ledger || !history.run.empty()) &&
                   (owner.empty() || known_id.empty() || owner == known_id);
    if (start.is_own) start.run_id = owner.empty() ? known_id : owner;
  }
  if (start.run_id.empty()) start.run_id = report::make_run_id();

  const std::string root = folder.root().string();
  if (start.is_own) {
    const int64_t first = start.checkpoint->iteration + 1;
    if (config.start_rollout_id.value_or(first) < first && !choice.was_made_before) {
      throw ConfigError(fmt::format(
          "--start-rollout-id {}: {} has rollouts up to {} already, which would be overwritten; "
          "give another --run-dir and --load {}",
          *config.start_rollout_id, root, first - 1, own.string()));
    }
    return start;
  }
  if (choice.is_of_load) {
    throw ConfigError(fmt::format(
        "--run-dir {}: began with --load {}, and its newest checkpoint in {} is another "
        "run's; give another --run-dir",
        root, config.load, own.string()));
  }
  // Nothing is there, or only what --save holds of another run, which this one goes on from.
  const bool has_steps = history.has_steps() || may_have_steps_elsewhere(config, history);
  if (!has_steps && (loads_own || history.checkpoints.empty())) {
    if (history.has_ledger)
      warn(fmt::format("the run in {} ended before its first step: this one begins there", root));
    return start;
  }
  const bool may_be_begun_again = loads_own || history.checkpoints.empty();
  const std::string why =
      may_be_begun_again ? why_not_begun_again(config, history) : "it has checkpoints of its own";
  if (why.empty()) {
    warn(fmt::format("the run in {} ended before its first checkpoint: it starts over", root));
    return start;
  }
  const std::string goes_on =
      history.checkpoints.empty() || loads_own
          ? ""
          : fmt::format("leave --load out to go on from {}, ",
                        (own / train::checkpoint_name(history.checkpoints.back())).string());
  throw ConfigError(
      fmt::format("--run-dir {}: has results of an earlier run ({}), and they cannot be gone on "
                  "from ({}); {}give another --run-dir, or --overwrite to delete them",
                  root, history.describe(), why, goes_on));
}

}  // namespace

StartPoint choose_start(const config::RunConfig& config, const report::RunFolder& folder,
                        const BranchChoice& choice, const train::Warn& warn) {
  return completed(config, choice, find_start(config, folder, choice, warn), warn);
}

void refuse_fewer_steps(const config::RunConfig& config, const StartPoint& start, int64_t planned) {
  if (!start.checkpoint || start.checkpoint->iteration + 1 <= planned) return;
  throw ConfigError(fmt::format(
      "{} {}: {} has {} rollout steps behind it, the run would have {}; give more, or --finetune "
      "to begin anew with its weights",
      config.num_rollout ? "--num-rollout" : "--num-epoch",
      config.num_rollout.value_or(config.num_epoch.value_or(0)),
      start.checkpoint->directory.string(), start.checkpoint->iteration + 1, planned));
}

StartPoint choose_start_again(const StartPoint& first, const report::RunFolder& folder,
                              const train::Warn& warn) {
  StartPoint start = first;
  std::optional<train::Checkpoint> newest = train::find_checkpoint(folder.checkpoints(), warn);
  if (!newest || report::run_id_of(newest->run) != first.run_id) return start;
  (model::has_adapter(newest->directory) ? start.adapter : start.weights) =
      newest->directory.string();
  start.checkpoint = std::move(newest);
  start.finetuned.reset();
  start.left_out = 0;  // flags that leave parts out are of the beginning
  start.is_own = true;
  return start;
}

int64_t epoch_of(const StartPoint& start) {
  const json::value* epoch =
      start.checkpoint ? start.checkpoint->run.if_contains("epoch") : nullptr;
  return epoch != nullptr && epoch->is_int64() ? epoch->get_int64() : -1;
}

}  // namespace slime::loop
