#include "cli/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "cli/options.h"
#include "config/flag_table.h"
#include "config/parse_flags.h"
#include "config/validate.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/field_reader.h"
#include "core/json.h"
#include "loop/restarts.h"

namespace slime::cli {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError(fmt::format("{}: cannot be read", path.string()));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// What concerns how samples came about, how they were judged, or where the run was: a replay has
/// its own.
bool is_left_out(const std::string& name) {
  static constexpr std::array<std::string_view, 22> kNames{"--run-dir",
                                                           "--ckpt-step",
                                                           "--rollout-data-dir",
                                                           "--save",
                                                           "--load",
                                                           "--overwrite",
                                                           "--start-rollout-id",
                                                           "--num-epoch",
                                                           "--num-rollout",
                                                           "--num-threads",
                                                           "--save-interval",
                                                           "--save-debug-rollout-data",
                                                           "--load-debug-rollout-data",
                                                           "--dump-details",
                                                           "--rollout-function-path",
                                                           "--environment",
                                                           "--environment-args",
                                                           "--profile",
                                                           "--mask-offpolicy-in-partial-rollout",
                                                           "--num-data-workers",
                                                           "--streaming-data",
                                                           "--debug-train-only"};
  if (std::ranges::find(kNames, name) != kNames.end()) return true;
  const config::FlagRow* flag = config::find_flag(name);
  if (flag == nullptr) return false;
  return (flag->group == config::FlagGroup::kAsync && name != "--update-weights-interval") ||
         flag->group == config::FlagGroup::kEval || name.starts_with("--wandb") ||
         name == "--use-wandb";
}

/// RUN_DIR-replay; of a branch RUN_DIR-ID-replay: what lies in branches/ is the run's.
fs::path folder_beside(const fs::path& run_dir) {
  const fs::path above = fs::absolute(run_dir).lexically_normal().parent_path();
  if (above.filename() != "branches" || !fs::exists(above.parent_path() / "run.json"))
    return run_dir.string() + "-replay";
  return fmt::format("{}-{}-replay", above.parent_path().string(), run_dir.filename().string());
}

/// The run's flags, for training on its rollout files in `folder`.
std::vector<std::string> words_for(const fs::path& run_dir, const fs::path& folder) {
  const fs::path path = run_dir / "run.json";
  const json::value run = parse_json(read_file(path), path.string());
  if (!run.is_object()) throw ConfigError(path.string() + ": should be an object");
  const FieldReader fields(run.get_object(), path.string() + ": ");
  const json::object* flags = fields.required().object("flags");
  json::object kept;
  for (const auto& member : *flags) {
    if (!is_left_out(std::string(member.key()))) kept[member.key()] = member.value();
  }
  std::vector<std::string> words = config::words_of(kept, path.string());
  const auto add = [&words](std::initializer_list<std::string> more) {
    words.insert(words.end(), more);
  };
  add({"--num-rollout", std::to_string(*fields.required().integer("num_rollout", 0))});
  add({"--load-debug-rollout-data",
       (run_dir / "rollouts" / "step_{rollout_id:06d}.jsonl").string()});
  add({"--run-dir", folder.string()});
  // Sums of gradients are made in the order of threads.
  if (const auto threads = fields.integer("trainer_threads", 1, 4096))
    add({"--num-threads", std::to_string(*threads)});
  return words;
}

}  // namespace

int replay(std::span<const std::string> arguments) {
  fs::path run_dir;
  fs::path folder;
  CLI::App app(
      "Trains once more on the rollouts of a run, in the order in which it trained on them, and "
      "compares the weights. On the CPU they are equal.",
      "slime replay");
  app.add_option("RUN_DIR", run_dir, "a finished run directory, as in runs/NAME")->required();
  app.add_option("--run-dir", folder,
                 "the replay's own folder (default: RUN_DIR-replay, beside the run)");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  if (!run_dir.has_filename()) run_dir = run_dir.parent_path();
  if (folder.empty()) folder = folder_beside(run_dir);
  if (!fs::exists(run_dir / "rollouts"))
    throw ConfigError(
        fmt::format("{}: has no rollouts to train on; was it run with "
                    "--no-save-rollouts?",
                    run_dir.string()));

  config::ParsedFlags flags = config::parse_flags(words_for(run_dir, folder));
  config::complete_and_validate(flags);
  const SystemClock clock;
  const int exit_code = loop::run_on_this_host(flags, clock);
  if (exit_code != 0) return exit_code;
  const fs::path weights = fs::path("latest") / "model.safetensors";
  const bool is_equal = read_file(run_dir / weights) == read_file(folder / weights);
  fmt::print("{} and {}: the weights are {}\n", (run_dir / weights).string(),
             (folder / weights).string(), is_equal ? "equal" : "different");
  return is_equal ? 0 : 1;
}

}  // namespace slime::cli
