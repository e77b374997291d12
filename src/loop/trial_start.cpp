#include "loop/trial_start.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <sstream>
#include <string_view>

#include "buffer/data_files.h"
#include "buffer/filter.h"
#include "buffer/sliced_path.h"
#include "config/eval_config.h"
#include "config/unread_flags.h"
#include "config/users_functions.h"
#include "config/validate.h"
#include "core/calendar.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/temporary_folder.h"
#include "loop/branches.h"
#include "loop/start_point.h"
#include "loop/translations.h"
#include "model/config.h"
#include "model/network.h"
#include "plugin/plugins.h"
#include "plugin/trainer_functions.h"
#include "report/rollout_archive.h"
#include "report/rollout_files.h"
#include "report/run_folder.h"
#include "roles/networks.h"
#include "roles/run_adapters.h"
#include "roles/run_start.h"
#include "setup/prompts.h"
#include "setup/run_devices.h"
#include "setup/scores.h"
#include "setup/train_config.h"
#include "setup/vocabularies.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::loop {
namespace {

namespace fs = std::filesystem;

/// Rows of each file that are read.
constexpr int64_t kFirstRows = 16;

using Sentences = std::vector<std::string>;

/// A line that begins with a space belongs to the one above: a traceback is no problem of its own.
void add_lines(Sentences& sentences, const char* text) {
  Sentences said;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(' ') && !said.empty()) {
      said.back() += "\n" + line;
    } else {
      said.push_back(line);
    }
  }
  for (const std::string& sentence : said) {
    if (std::ranges::find(sentences, sentence) == sentences.end()) sentences.push_back(sentence);
  }
}

/// What a part refuses, beside what others do.
void attempt(Sentences& problems, const std::function<void()>& part) {
  try {
    part();
  } catch (const ConfigError& error) {
    add_lines(problems, error.what());
  } catch (const fs::filesystem_error& error) {
    add_lines(problems, error.what());
  }
}

std::string first_rows(const std::string& path) {
  buffer::SlicedPath sliced = buffer::parse_sliced_path(path);
  if (sliced.counts_from_the_end()) return path;
  const int64_t begin = sliced.begin.value_or(0);
  const int64_t end = std::min(sliced.end.value_or(begin + kFirstRows), begin + kFirstRows);
  return fmt::format("{}@[{}:{}]", sliced.path.string(), begin, end);
}

bool is_here(const std::string& path) { return buffer::has_data_files(path); }

bool evaluates(const config::RunConfig& config) {
  return config.generates() && config.eval_interval && !config::has_users_evaluation(config);
}

/// Of evaluation; none where its file is not here.
std::vector<config::EvalSetConfig> eval_sets(const config::RunConfig& config) {
  const bool has_config = !config.eval_config.empty();
  if (has_config ? !fs::exists(config.eval_config) : config.eval_prompt_data.empty()) return {};
  return config::eval_sets_of(config);
}

void note_data(const config::RunConfig& config, Sentences& absent) {
  std::set<std::string> seen;
  const auto look_at = [&](std::string_view flag, const std::string& path) {
    if (is_here(path)) return;
    if (seen.insert(path).second) absent.push_back(fmt::format("{} {}: no such file", flag, path));
  };
  for (const std::string& path : config.prompt_data) look_at("--prompt-data", path);
  if (!config.load_debug_rollout_data.empty()) {
    look_at(
        "--load-debug-rollout-data",
        report::numbered_path(config.load_debug_rollout_data, config.start_rollout_id.value_or(0)));
  }
  for (const config::EvalSetConfig& set : eval_sets(config))
    look_at(config.eval_config.empty() ? "--eval-prompt-data" : "--eval-config", set.path);
}

/// Whether the first file of --load-debug-rollout-data is of a form that is read.
void look_at_dump(const config::RunConfig& config) {
  if (config.load_debug_rollout_data.empty()) return;
  const fs::path first =
      report::numbered_path(config.load_debug_rollout_data, config.start_rollout_id.value_or(0));
  const json::object descriptor = report::archive_descriptor(first);
  if (!descriptor.empty()) report::data_of_archive(first, descriptor);
}

/// The rows behind the first may be shorter.
void note_no_row_left(const std::string& path, Sentences& notes) {
  notes.push_back(fmt::format(
      "{}: all of its first rows are left out, or longer than the limits of prompts; a run without "
      "a row is refused",
      path));
}

/// The first rows of every file that is here, as the run would read them.
void read_first_rows(config::ParsedFlags& flags, Sentences& problems) {
  const config::RunConfig& config = flags.config;
  const bool evaluation = evaluates(config);
  const setup::ModelText text = setup::load_model_text(
      config.hf_checkpoint, roles::needs_template(config, evaluation),
      std::chrono::floor<std::chrono::days>(local_time(SystemClock().unix_seconds())));
  if (config.generates()) {
    attempt(problems, [&] {
      setup::check_stop_tokens("--rollout-stop-token-ids", config.rollout_stop_token_ids.get(),
                               text);
    });
  }
  for (const std::string& note : setup::unread_variables(config, text))
    flags.warnings.push_back(note);
  const bool reads_rows =
      !config::has_users_data_source(config) && !config.disable_rollout_global_dataset;
  if (reads_rows) {
    config::RunConfig first = config;
    first.streaming_data = false;
    for (const std::string& path : config.prompt_data) {
      if (!is_here(path)) continue;
      first.prompt_data = std::vector<std::string>{first_rows(path)};
      attempt(problems, [&] {
        try {
          const buffer::Dataset rows = setup::load_prompts(first, text);
          const std::string whose = "the first of " + path;
          for (const std::string& note : roles::missing_fields(rows, config, flags, whose))
            flags.warnings.push_back(note);
        } catch (const buffer::NoRowLeft&) {
          note_no_row_left(path, flags.warnings);
        }
      });
    }
  }
  if (!evaluation) return;
  for (config::EvalSetConfig set : eval_sets(config)) {
    attempt(problems, [&] {
      setup::check_stop_tokens(fmt::format("evaluation data set {}: stop_token_ids", set.name),
                               set.stop_token_ids, text);
    });
    if (!is_here(set.path)) continue;
    set.path = first_rows(set.path);
    attempt(problems, [&] {
      try {
        const buffer::Dataset rows = setup::load_eval_prompts(config, text, set);
        for (const std::string& note : roles::missing_fields(rows, config, set))
          flags.warnings.push_back(note);
      } catch (const buffer::NoRowLeft&) {
        note_no_row_left(set.path, flags.warnings);
      }
    });
  }
}

/// A folder of this process, deleted with the object.
/// Functions and libraries, as the run would import them.
bool import_all(config::ParsedFlags& flags, Sentences& problems) {
  const config::RunConfig& config = flags.config;
  std::vector<std::string> eval_rewards;
  if (evaluates(config)) {
    for (const config::EvalSetConfig& set : eval_sets(config))
      if (!set.custom_rm_path.empty()) eval_rewards.push_back(set.custom_rm_path);
  }
  const TemporaryFolder logs("slime-dry-run");
  attempt(problems, [&] {
    for (const std::string& note : plugin::import_functions(config, eval_rewards, logs.path()))
      flags.warnings.push_back(note);
  });
  if (!config.debug_rollout_only)
    attempt(problems, [&] { plugin::import_trainer_functions(config, logs.path()); });
  return config::has_users_code(config);
}

/// Whether all that a run reads before its first token is on this machine.
bool knows_beginning(const config::RunConfig& config) {
  const auto is_missing = [](const config::EvalSetConfig& set) { return !is_here(set.path); };
  return (config.load.empty() || fs::exists(config.load)) &&
         std::ranges::all_of(config.prompt_data.get(), is_here) &&
         std::ranges::none_of(eval_sets(config), is_missing);
}

/// Reference, teacher and critic, where they are here.
void try_other_models(const config::RunConfig& config, Sentences& problems) {
  if (config.needs_reference() && !fs::exists(config.ref_load)) return;  // noted with the flags
  const std::vector<setup::OtherModel> others = setup::other_models(config);
  std::vector<setup::OtherModel> here;
  for (const setup::OtherModel& other : others) {
    if (!fs::exists(other.directory)) continue;
    attempt(problems, [&] {
      model::check_weight_files(other.directory);
      here.push_back(other);
    });
  }
  if (!here.empty())
    setup::check_vocabularies(config, *text::Tokenizer::load(config.hf_checkpoint), here);
}

/// The model directory, where it is here: then this is a machine of the run.
void try_model(config::ParsedFlags& flags, TrialStart& start) {
  const config::RunConfig& config = flags.config;
  const fs::path directory = config.hf_checkpoint;
  attempt(start.problems, [&] {
    const model::ModelConfig model = model::read_model_config(directory);
    roles::check_shape(config, model);
    roles::check_weight_lists(config, model);
    if (config.trains_adapters() && !config.debug_rollout_only) roles::adapter_form(config, model);
  });
  const bool has_weights = fs::exists(directory / "model.safetensors") ||
                           fs::exists(directory / "model.safetensors.index.json");
  attempt(start.problems, [&] {
    if (has_weights) {
      model::check_weight_files(directory);
    } else {
      start.absent.push_back(
          fmt::format("--hf-checkpoint {}: there are no weights", directory.string()));
    }
  });
  std::error_code error;  // links that lead nowhere
  if (config.generates() && config.names_draft_model() &&
      !fs::exists(config.rollout_draft_model.peek(), error)) {
    start.absent.push_back(
        fmt::format("--rollout-draft-model {}: is not here", config.rollout_draft_model.peek()));
  }
  attempt(start.problems, [&] { try_other_models(config, start.problems); });
  attempt(start.problems, [&] { read_first_rows(flags, start.problems); });
  // Data or a checkpoint that are elsewhere may ask for any of them.
  if (knows_beginning(config))
    for (const std::string& note : config::unread_at_start(flags)) flags.warnings.push_back(note);
  attempt(start.problems, [&] { start.imported_functions = import_all(flags, start.problems); });
}

/// Whether a file can be made in `folder`: only trying tells it of read-only file systems, and of root.
/// What is tried has no name; where the file system has no such files, it is a folder for a moment.
bool takes_files(const fs::path& folder) {
  const int file = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (file >= 0) {
    ::close(file);
    return true;
  }
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT) return false;
  std::string name = (folder / ".slime-dry-run-XXXXXX").string();
  return ::mkdtemp(name.data()) != nullptr && ::rmdir(name.c_str()) == 0;
}

/// Of --run-dir or --save, which a run makes. A file in its way is a refusal; a folder that cannot be
/// written here may be writable where the run is.
void try_folder(const char* flag, const fs::path& named, TrialStart& start) {
  fs::path folder = fs::absolute(named).lexically_normal();
  std::error_code error;
  while (!fs::exists(fs::symlink_status(folder, error)) && folder.has_relative_path())
    folder = folder.parent_path();
  if (!fs::is_directory(folder, error)) {
    start.problems.push_back(
        fmt::format("{} {}: {} is no folder", flag, named.string(), folder.string()));
  } else if (!takes_files(folder)) {
    start.absent.push_back(
        fmt::format("{} {}: {} cannot be written here", flag, named.string(), folder.string()));
  }
}

void note_machine(const config::RunConfig& config, TrialStart& start) {
  attempt(start.problems, [&] { setup::place_workers(config, 1, 0); });
  // A login node has no devices, and is one host.
  if (config.actor_num_nodes > 1) {
    start.absent.push_back(
        fmt::format("--actor-num-nodes {}: this is one host", config.actor_num_nodes));
  } else {
    attempt(start.absent, [&] { setup::check_devices(config); });
  }
  if (!config.run_dir.empty() || config.save.empty())
    try_folder("--run-dir", config.run_dir.empty() ? "runs" : config.run_dir.get(), start);
  if (!config.save.empty()) try_folder("--save", config.save, start);
}

/// What the run would go on from, and what it says of that. A folder of --load that is not here is
/// only noted, unless a run begins without it: what --save names is empty at first, and --ref-load
/// has weights to begin with.
void try_beginning(config::ParsedFlags& flags, TrialStart& start) {
  const config::RunConfig& config = flags.config;
  report::RunFolder folder = report::RunFolder::only_named(config);
  const bool is_own =
      fs::path(config.load.get()).lexically_normal() == folder.checkpoints().lexically_normal();
  const bool begins_without =
      is_own || !(config.ref_load.empty() || config.ref_load == config.hf_checkpoint);
  // What lies in the run's own folder, which is here, is not elsewhere.
  const std::string inside = (fs::absolute(folder.root()) / "").lexically_normal().string();
  const bool is_inside =
      !config.load.empty() && fs::exists(folder.root()) &&
      fs::absolute(config.load.get()).lexically_normal().string().starts_with(inside);
  if (!config.load.empty() && !fs::exists(config.load) && !begins_without && !is_inside) {
    start.absent.push_back(fmt::format("--load {}: no such folder", config.load));
    return;
  }
  if (!fs::exists(folder.root()) && !fs::exists(folder.checkpoints()) && config.load.empty())
    return;
  const auto note = [&flags](const std::string& line) { flags.warnings.push_back(line); };
  const BranchChoice choice = choose_branch(config, folder, note);
  if (choice.makes_branch) {
    note(fmt::format("a new branch would go on after rollout {} of branch {}", *choice.step,
                     choice.branch));
  }
  if (choice.is_own) folder.go_to_branch(choice.branch);
  if (!config.overwrite) folder.check_pool();
  const StartPoint point = choose_start(config, folder, choice, note);
  if (config.num_rollout) refuse_fewer_steps(config, point, *config.num_rollout);
}

/// A run would say it before the first row of its data.
void try_rewards(const config::RunConfig& config) {
  if (!config.has_users_reward()) reward::make_reward(config.rm_type, setup::reward_config(config));
  if (!config::has_users_filter(config)) buffer::make_filter(config.dynamic_sampling_filter_path);
}

}  // namespace

TrialStart try_start(config::ParsedFlags& flags) {
  TrialStart start;
  bool is_valid = false;
  attempt(start.problems, [&] {
    config::complete_and_validate(flags, start.absent);
    is_valid = true;
  });
  const config::RunConfig& config = flags.config;
  if (is_valid) {
    attempt(start.problems, [&] { make_translations(config, model_if_here(config).get()); });
    config::note_unread_flags(flags);
    if (config.num_rollout) {
      for (const std::string& note : setup::schedule_notes(config, *config.num_rollout))
        flags.warnings.push_back(note);
    }
    attempt(start.problems, [&] { note_data(config, start.absent); });
    attempt(start.problems, [&] { look_at_dump(config); });
    note_machine(config, start);
    attempt(start.problems, [&] { try_beginning(flags, start); });
  }
  attempt(start.problems, [&] { try_rewards(config); });
  const fs::path directory = config.hf_checkpoint;
  if (config.hf_checkpoint.empty() || !fs::exists(directory / "config.json")) return start;
  if (is_valid) {
    try_model(flags, start);
  } else {
    attempt(start.problems,
            [&] { roles::check_shape(config, model::read_model_config(directory)); });
  }
  return start;
}

}  // namespace slime::loop
