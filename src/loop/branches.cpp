#include "loop/branches.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <string_view>
#include <vector>

#include "config/parse_flags.h"
#include "core/error.h"
#include "core/own_command.h"
#include "core/shell_word.h"
#include "loop/branch_copy.h"
#include "report/branch_files.h"
#include "report/run_history.h"
#include "setup/named_model.h"
#include "train/checkpoint_directory.h"
#include "train/commit_record.h"

namespace slime::loop {
namespace {

namespace fs = std::filesystem;
using report::BranchPlace;

bool is_that_folder(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::weakly_canonical(a / "", error) == fs::weakly_canonical(b / "", error) && !error;
}

/// What --load names: a folder of checkpoints, and maybe one of them.
struct Named {
  fs::path folder;
  std::optional<int64_t> step;
  bool by_record = false;  // committed_n.json
};

std::string list_of(const std::vector<int64_t>& steps) {
  return steps.empty() ? "none" : fmt::format("{}", fmt::join(steps, ", "));
}

/// committed_n.json and iter_n are one of the checkpoints of their folder.
Named read_load(const fs::path& load) {
  if (const auto step = train::iteration_of_record(load)) {
    const fs::path folder = fs::absolute(load).lexically_normal().parent_path().parent_path();
    if (!fs::is_regular_file(load)) {
      throw ConfigError(fmt::format(
          "--load {}: there is no such record; checkpoints in {}: {} (those before them "
          "were removed where --keep-checkpoints is not 0)",
          load.string(), folder.string(), list_of(train::committed_iterations(folder))));
    }
    const fs::path checkpoint = folder / train::checkpoint_name(*step);
    if (fs::exists(checkpoint / "COMMITTED")) {
      if (const std::string damage = train::commit_record_damage(folder, *step); !damage.empty())
        throw ConfigError(
            fmt::format("--load {}: does not belong to its checkpoint: {}; --load {} goes on from "
                        "the checkpoint "
                        "as it is",
                        load.string(), damage, checkpoint.string()));
    }
    return {folder, step, true};
  }
  if (fs::exists(load / "COMMITTED")) {
    const fs::path one = fs::canonical(load);  // RUN_DIR/latest is a link
    const auto iterations = train::checkpoint_iterations(one.parent_path());
    for (const int64_t step : iterations) {
      if (one.filename() == train::checkpoint_name(step)) return {one.parent_path(), step};
    }
  }
  return {load, std::nullopt};
}

/// The branch whose folder this is. branches/main is no folder: the first branch.
std::optional<std::string> branch_at(const BranchPlace& base, const fs::path& folder) {
  const fs::path named = fs::path(folder.string() + "/").lexically_normal().parent_path();
  if (named.filename() == report::kMainBranch && named.parent_path().filename() == "branches") {
    const fs::path above = named.parent_path().parent_path();
    if (is_that_folder(above, base.root) || is_that_folder(above, base.checkpoints))
      return report::kMainBranch;
  }
  for (const std::string& name : report::branch_names(base)) {
    const BranchPlace place = report::place_of_branch(base, name);
    if (is_that_folder(folder, place.checkpoints) ||
        (name != report::kMainBranch && is_that_folder(folder, place.root)))
      return name;
  }
  return std::nullopt;
}

/// A step that somebody wrote into latest_checkpointed_iteration.txt. A process that dies between a
/// checkpoint and that file leaves it one behind, and no record of the checkpoint.
std::optional<int64_t> edited_step(const fs::path& checkpoints) {
  const std::vector<int64_t> steps = train::committed_iterations(checkpoints);
  const std::optional<int64_t> tracked = train::tracked_iteration(checkpoints);
  if (steps.empty() || !tracked || *tracked == steps.back()) return std::nullopt;
  const bool is_recorded = fs::exists(train::commit_record(checkpoints, steps.back()));
  // Somebody has deleted the newest checkpoint.
  const bool was_there = fs::exists(train::commit_record(checkpoints, *tracked));
  if (*tracked > steps.back() && (was_there || !is_recorded)) return std::nullopt;
  const bool is_one_behind = steps.size() > 1 && *tracked == steps[steps.size() - 2];
  if (!is_recorded && (is_one_behind || steps.size() == 1)) return std::nullopt;
  return tracked;
}

/// A checkpoint in the history of a branch.
struct Point {
  std::string branch;
  int64_t step = 0;
};

bool has_step(const BranchPlace& base, const std::string& branch, int64_t step) {
  const auto steps = train::committed_iterations(report::place_of_branch(base, branch).checkpoints);
  return std::ranges::find(steps, step) != steps.end();
}

/// All that a branch can go back to, its own first: each step once, with the branch nearest to it.
std::vector<Point> history_of(const BranchPlace& base, const std::string& branch) {
  std::vector<Point> points;
  std::string at = branch;
  int64_t last = std::numeric_limits<int64_t>::max();
  const std::size_t most = report::branch_names(base).size();  // no circle is longer
  for (std::size_t i = 0; i < most; ++i) {
    const auto origin = report::origin_of_branch(base, at);
    for (const int64_t step :
         train::committed_iterations(report::place_of_branch(base, at).checkpoints)) {
      // The first of a branch is its parent's.
      if (step <= last && !(origin && step <= origin->step)) points.push_back({at, step});
    }
    if (!origin) break;
    last = std::min(last, origin->step);
    // A parent may have lost the checkpoint that the branch still has.
    if (has_step(base, at, origin->step) && !has_step(base, origin->parent, origin->step))
      points.push_back({at, origin->step});
    at = origin->parent;
  }
  return points;
}

[[noreturn]] void refuse_step(const BranchPlace& base, const std::string& branch,
                              const std::string& how, int64_t step) {
  std::vector<int64_t> steps;
  for (const Point& point : history_of(base, branch)) steps.push_back(point.step);
  std::ranges::sort(steps);
  std::string elsewhere;
  for (const std::string& name : report::branch_names(base)) {
    const BranchPlace place = report::place_of_branch(base, name);
    const auto others = train::committed_iterations(place.checkpoints);
    if (std::ranges::find(others, step) == others.end()) continue;
    elsewhere = fmt::format("; branch {} has one: --load {}", name,
                            (place.checkpoints / train::checkpoint_name(step)).string());
    break;
  }
  throw ConfigError(fmt::format(
      "{}: there is no checkpoint of rollout {} in the history of branch {} of {}; there are: {} "
      "(--keep-checkpoints 0 keeps all){}",
      how, step, branch, base.root.string(), list_of(steps), elsewhere));
}

/// The flags that make one command another, but for where it goes on.
json::object flags_of_command(const config::RunConfig& config) {
  constexpr std::array<std::string_view, 4> kPlaces{"--run-dir", "--save", "--load", "--dry-run"};
  json::object flags = config::changed_flags(config);
  for (const std::string_view place : kPlaces) flags.erase(place);
  return flags;
}

/// A branch that this command has made there before.
std::optional<std::string> made_before(const config::RunConfig& config, const BranchPlace& base,
                                       const Point& from) {
  const json::object flags = flags_of_command(config);
  for (const std::string& name : report::branch_names(base)) {
    const auto origin = report::origin_of_branch(base, name);
    if (origin && origin->parent == from.branch && origin->step == from.step &&
        origin->flags == flags)
      return name;
  }
  return std::nullopt;
}

/// `how`: what asks for the step, for messages.
void choose_step(const config::RunConfig& config, const BranchPlace& base, int64_t step,
                 const std::string& how, BranchChoice& choice) {
  const auto own =
      train::committed_iterations(report::place_of_branch(base, choice.branch).checkpoints);
  if (!own.empty() && own.back() == step) return;  // the newest: as without
  const std::vector<Point> history = history_of(base, choice.branch);
  const auto point = std::ranges::find(history, step, &Point::step);
  if (point == history.end()) refuse_step(base, choice.branch, how, step);
  if (const auto before = made_before(config, base, *point)) {
    choice.branch = *before;
    choice.was_made_before = true;
    return;
  }
  choice.branch = point->branch;
  choice.step = step;
  const auto of_point =
      train::committed_iterations(report::place_of_branch(base, point->branch).checkpoints);
  choice.makes_branch = of_point.back() != step;
}

/// False too where the file names a branch that is gone: another was chosen instead.
bool is_active(const BranchPlace& base, const std::string& name) {
  try {
    return report::active_branch(base) == name;
  } catch (const ConfigError&) {
    return false;
  }
}

/// Whether a path is that of the run, or in it.
bool is_inside(const BranchPlace& base, const fs::path& path) {
  std::error_code unknown;
  const std::string given = (fs::weakly_canonical(path, unknown) / "").string();
  return std::ranges::any_of(std::array{base.root, base.checkpoints}, [&](const fs::path& folder) {
    return given.starts_with((fs::weakly_canonical(folder, unknown) / "").string());
  });
}

/// Whether the run in the folder began with this --load of something else: one of its own
/// checkpoints chooses among what is there.
bool began_with_this(const config::RunConfig& config, const report::RunFolder& folder) {
  if (config.load.empty() || config.overwrite || is_inside(folder.base(), config.load.get()))
    return false;
  const report::RunHistory history = report::read_history(folder);
  const json::value* began = history.run.if_contains(kBeganWith);
  return began != nullptr && *began == json::value(beginning_of(config)) &&
         !train::committed_iterations(folder.base().checkpoints).empty();
}

/// A queue goes on exactly, or not at all.
void refuse_inexact(const config::RunConfig& config, const std::string& how) {
  std::vector<std::string> problems;
  const auto refuse = [&](bool is_set, std::string_view flag) {
    if (is_set)
      problems.push_back(
          fmt::format("{}: not with {}, which goes on exactly, with optimizer, data and queue; "
                      "leave {} out, or "
                      "begin a new run with --run-dir NEW --load FOLDER --finetune",
                      flag, how, flag));
  };
  refuse(config.finetune, "--finetune");
  refuse(config.no_load_optim, "--no-load-optim");
  if (!problems.empty()) throw ConfigError(problems);
}

void check_first_rollout(const config::RunConfig& config, const std::string& how, int64_t step) {
  if (!config.start_rollout_id || *config.start_rollout_id == step + 1) return;
  throw ConfigError(fmt::format("--start-rollout-id {}: {} goes on with rollout {}; leave it out",
                                *config.start_rollout_id, how, step + 1));
}

}  // namespace

json::object beginning_of(const config::RunConfig& config) {
  json::object beginning{{"load", config.load.get()}, {"finetune", config.finetune.get()}};
  if (config.ckpt_step) beginning["ckpt_step"] = *config.ckpt_step;
  if (config.no_load_optim) beginning["no_load_optim"] = true;
  return beginning;
}

BranchChoice choose_branch(const config::RunConfig& config, const report::RunFolder& folder,
                           const train::Warn& warn) {
  const BranchPlace& base = folder.base();
  const bool asks_for_step = config.ckpt_step.has_value();
  const bool is_straw = config.rollout_data_transport == "straw";
  BranchChoice choice;
  Named named;
  // First: the other run may have removed its checkpoint since.
  if (began_with_this(config, folder)) {
    choice.was_made_before = choice.is_of_load = true;
    const std::string_view left_out = config.finetune        ? " (--finetune is behind it)"
                                      : config.no_load_optim ? " (--no-load-optim is behind it)"
                                                             : "";
    warn(
        fmt::format("--load {}: the run began there{}, and goes on after its own newest checkpoint",
                    config.load, left_out));
    return choice;
  }
  if (!config.load.empty()) named = read_load(config.load.get());
  if (config.finetune && !named.by_record && !asks_for_step) {
    // Weights alone: of a folder, or of one checkpoint (loop/start_point.cpp).
    const fs::path from = config.load.empty() ? base.checkpoints : fs::path(config.load.get());
    if (is_straw && !train::committed_iterations(from).empty())
      refuse_inexact(config, "--rollout-data-transport straw");
    choice.is_own = config.load.empty() || is_that_folder(config.load.get(), base.checkpoints);
    if (choice.is_own) choice.branch = report::active_branch(base);
    return choice;
  }
  std::string how = named.step ? fmt::format("--load {}", config.load)
                               : fmt::format("--ckpt-step {}", config.ckpt_step.value_or(-1));
  if (named.step && asks_for_step && named.step != config.ckpt_step) {
    throw ConfigError(fmt::format("--ckpt-step {} and --load {}: two steps; give one of them",
                                  *config.ckpt_step, config.load));
  }
  std::optional<int64_t> step = named.step ? named.step : config.ckpt_step.get();
  if (config.overwrite && config.load.empty() && step)
    throw ConfigError(how + ": not with --overwrite, which deletes all checkpoints of the run");
  const bool names_base = config.load.empty() || is_that_folder(named.folder, base.checkpoints);
  const auto branch = config.load.empty() ? std::nullopt : branch_at(base, named.folder);
  if (!names_base && !branch) {
    choice.is_own = false;
    choice.elsewhere = named.folder.string();
    if (step && setup::is_model_directory(named.folder) &&
        train::committed_iterations(named.folder).empty()) {
      throw ConfigError(
          fmt::format("{}: --load {} is a model directory, which has no steps", how, config.load));
    }
    if (!step) {
      step = edited_step(named.folder);
      if (step) how = fmt::format("{}/latest_checkpointed_iteration.txt", named.folder.string());
    }
    choice.step = step;
    if (named.by_record || (is_straw && !train::committed_iterations(named.folder).empty()))
      refuse_inexact(config, named.by_record ? how : "--rollout-data-transport straw");
    return choice;
  }
  if (config.overwrite) return choice;
  // A folder of --save alone is the whole run's: published scripts give --load and --save alike.
  const bool is_whole_run = names_base && !named.step;
  choice.branch =
      is_whole_run || !branch ? report::active_branch(base) : branch.value_or(report::kMainBranch);
  if (!step && is_whole_run) {
    std::vector<std::string> places{choice.branch};
    if (choice.branch != report::kMainBranch) places.emplace_back(report::kMainBranch);
    for (const std::string& name : places) {
      const fs::path checkpoints = report::place_of_branch(base, name).checkpoints;
      step = edited_step(checkpoints);
      if (!step) continue;
      choice.branch = name;
      choice.edited = checkpoints.string();
      how = fmt::format("{}: says {}", (checkpoints / "latest_checkpointed_iteration.txt").string(),
                        *step);
      warn(how + ": the run goes on after that rollout");
      break;
    }
  }
  const bool is_exact = named.by_record || is_straw;
  if (step) choose_step(config, base, *step, how, choice);
  const auto steps =
      train::committed_iterations(report::place_of_branch(base, choice.branch).checkpoints);
  if (is_exact && !steps.empty())
    refuse_inexact(config, named.by_record ? how : "--rollout-data-transport straw");
  if (config.finetune && choice.makes_branch) {
    const fs::path from = report::place_of_branch(base, choice.branch).checkpoints;
    throw ConfigError(fmt::format(
        "--finetune: begins at rollout 0, and {} has checkpoints of its own; leave --finetune out "
        "to go on after rollout {}, or give another --run-dir (and --save) and --load {} "
        "--ckpt-step {}",
        base.root.string(), *choice.step, from.string(), *choice.step));
  }
  if (step && !steps.empty() && !choice.was_made_before)
    check_first_rollout(config, how, choice.step.value_or(steps.back()));
  if (choice.makes_branch) {
    const fs::path checkpoint = report::place_of_branch(base, choice.branch).checkpoints /
                                train::checkpoint_name(*choice.step);
    if (const std::string damage = train::checkpoint_damage(checkpoint); !damage.empty())
      throw ConfigError(fmt::format("{}: {}: {}", how, checkpoint.string(), damage));
    if (!train::read_checkpoint(checkpoint, *choice.step).run.contains("ledger")) {
      throw ConfigError(fmt::format(
          "{}: {} has weights and no ledger, so nothing says where its data go on; --finetune with "
          "a new --run-dir begins with its weights",
          how, checkpoint.string()));
    }
    if (!fs::exists(report::place_of_branch(base, choice.branch).root / "ledger.jsonl")) {
      throw ConfigError(fmt::format(
          "{}: {} has no ledger.jsonl: it is not the folder of the run that wrote the checkpoints; "
          "give its --run-dir, or a new one with --load {}",
          how, report::place_of_branch(base, choice.branch).root.string(), checkpoint.string()));
    }
  }
  return choice;
}

void follow_choice(const BranchChoice& choice, report::RunFolder& folder, const train::Warn& warn) {
  const BranchPlace& base = folder.base();
  report::remove_unfinished_branches(base);
  if (!choice.is_own) return;
  if (choice.makes_branch) {
    const std::string name = report::new_branch_name(base);
    report::mark_unfinished(base, name);
    copy_branch(report::place_of_branch(base, choice.branch), report::place_of_branch(base, name),
                *choice.step);
    warn(fmt::format(
        "a new branch {} goes on after rollout {} of branch {}; the other stays as it "
        "is ({} shows them)",
        name, *choice.step, choice.branch, own_command("runs " + shell_word(base.root.string()))));
    folder.go_to_branch(name);
  } else if (choice.branch != folder.branch()) {
    warn(fmt::format("goes on in branch {}", choice.branch));
    folder.go_to_branch(choice.branch);
    folder.check_pool();
  }
}

void begin_branch(const config::RunConfig& config, const BranchChoice& choice,
                  const report::RunFolder& folder, int64_t step, const Clock& clock) {
  if (!choice.is_own) return;
  const BranchPlace& base = folder.base();
  const std::string& name = folder.branch();
  if (choice.makes_branch) {
    report::write_origin(base, name,
                         {.parent = choice.branch,
                          .step = *choice.step,
                          .time = clock.unix_seconds(),
                          .flags = flags_of_command(config)});
    report::mark_finished(base, name);
  }
  if (choice.makes_branch || !is_active(base, name)) report::set_active_branch(base, name, step);
  if (choice.edited) {
    const auto steps = train::committed_iterations(*choice.edited);
    if (!steps.empty()) train::set_tracked_iteration(*choice.edited, steps.back());
  }
}

}  // namespace slime::loop
