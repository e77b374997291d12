/// The command `slime train` as users type it, in a process of its own, on a made-up model
/// directory in a shape of bench/gpu/workloads.json.

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "bench/flags.h"
#include "bench/made_up_directory.h"
#include "cli/sibling.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/json_lines.h"
#include "core/word_pointers.h"

extern char** environ;

namespace slime::bench {
namespace fs = std::filesystem;
namespace {

struct TrainCommandOptions {
  std::string name;  // of the printed line
  ShapeOptions shape;
  std::string device = "cuda";
  int64_t prompts = 8;
  int64_t samples = 8;
  int64_t prompt_tokens = 256;
  int64_t new_tokens = 128;
  int64_t micro_batch_tokens = 16384;
  int64_t steps = 1;
  bool shows_log = false;  // of the command, on standard error
  /// Responses end at random after so many tokens on average, by stop token ids that are spread over
  /// the vocabulary: a made-up model draws all tokens alike. 0: all have new_tokens.
  int64_t mean_length = 0;
  int64_t engines_apart = 1;            // of forms that end in -apart
  std::vector<std::string> more_flags;  // of the command
};

/// The command on a made-up model directory.
class MadeUpRun {
 public:
  explicit MadeUpRun(const TrainCommandOptions& options)
      : directory_({.shape = options.shape,
                    .prompts = options.prompts * options.steps,
                    .prompt_tokens = options.prompt_tokens}) {}

  std::vector<std::string> command(const TrainCommandOptions& options,
                                   const std::string& subcommand = "train") const {
    const auto number = [](int64_t value) { return std::to_string(value); };
    std::vector<std::string> words{
        "slime",
        subcommand,
        "--device",
        options.device,
        "--hf-checkpoint",
        directory_.model().string(),
        "--prompt-data",
        directory_.prompts().string(),
        "--run-dir",
        (directory_.path() / "run").string(),
        "--rm-type",
        "random",
        "--num-rollout",
        number(options.steps),
        "--rollout-batch-size",
        number(options.prompts),
        "--n-samples-per-prompt",
        number(options.samples),
        "--rollout-max-response-len",
        number(options.new_tokens),
        "--sglang-max-running-requests",
        number(std::min<int64_t>(512, options.prompts * options.samples)),
        "--sglang-server-concurrency",
        number(options.prompts * options.samples),
        "--sglang-chunked-prefill-size",
        "8192",
        "--use-dynamic-batch-size",
        "--max-tokens-per-gpu",
        number(options.micro_batch_tokens),
        "--lr",
        "1e-6",
        "--no-save-optim",
        "--no-save-rollouts"};
    words.insert(words.end(), options.more_flags.begin(), options.more_flags.end());
    return words;
  }
  fs::path metrics() const { return directory_.path() / "run" / "metrics.jsonl"; }
  fs::path log() const { return directory_.path() / "train.log"; }

 private:
  const MadeUpDirectory directory_;
};

/// The program slime in this folder; its output goes to a file. Killed with this object if it still runs.
class TrainCommand {
 public:
  TrainCommand(std::vector<std::string> words, const fs::path& log) : log_(log) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    const std::vector<char*> argv = word_pointers(words);
    const std::string program = cli::sibling_path("slime");
    const int error =
        posix_spawn(&child_, program.c_str(), &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0)
      throw std::runtime_error(
          fmt::format("cannot start {} train: {}", program, std::strerror(error)));
  }
  TrainCommand(const TrainCommand&) = delete;
  TrainCommand& operator=(const TrainCommand&) = delete;
  ~TrainCommand() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

  /// Throws with the end of its output when it ended in failure.
  bool is_running() {
    if (child_ <= 0) return false;
    int status = 0;
    if (::waitpid(child_, &status, WNOHANG) == 0) return true;
    child_ = -1;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return false;
    std::ifstream file(log_);
    std::string text((std::istreambuf_iterator<char>(file)), {});
    throw std::runtime_error("slime train failed: " +
                             text.substr(text.size() > 2000 ? text.size() - 2000 : 0));
  }

 private:
  pid_t child_ = -1;
  fs::path log_;
};

void show_log(const TrainCommandOptions& options, const fs::path& log) {
  if (options.shows_log) std::cerr << std::ifstream(log).rdbuf();
}

double number(const json::object& metrics, const char* name) {
  const json::value* value = metrics.if_contains(name);
  return value == nullptr ? 0.0 : value->to_number<double>();
}

/// The subcommand and its flags.
struct FormFlags {
  std::string subcommand = "train";
  std::vector<std::string> flags;
};

constexpr std::string_view kApart = "-apart";  // engines on other devices

FormFlags flags_of_form(const std::string& form, const TrainCommandOptions& options) {
  if (form.ends_with(kApart)) {
    FormFlags here = flags_of_form(form.substr(0, form.size() - kApart.size()), options);
    if (std::ranges::find(here.flags, "--colocate") != here.flags.end())
      throw ConfigError(fmt::format("--forms {}: colocated is on one device", form));
    here.flags.insert(here.flags.end(),
                      {"--rollout-num-gpus", std::to_string(options.engines_apart)});
    return here;
  }
  if (form == "sync") return {};
  if (form == "april") {
    return {.flags = {"--partial-rollout", "--over-sampling-batch-size",
                      std::to_string(2 * options.prompts)}};
  }
  if (form == "one-step-ahead") return {"train-async", {"--update-mode", "drain"}};
  if (form == "colocated") return {"train-async", {"--colocate", "--use-tis"}};
  if (form.starts_with("async-") && form.size() > 6 &&
      std::ranges::all_of(form.substr(6), [](char digit) { return digit >= '0' && digit <= '9'; }))
    return {"train-async", {"--max-staleness", form.substr(6), "--use-tis"}};
  throw ConfigError(
      fmt::format("--forms {}: sync, april, one-step-ahead, async-1 (or another number) or "
                  "colocated; all but the "
                  "last also with -apart behind it: the engines on other devices",
                  form));
}

/// Ids that one draw of `mean` hits, where all are alike.
std::vector<std::string> stop_ids(int64_t vocab_size, int64_t mean) {
  std::vector<std::string> ids;
  for (int64_t id = 0; id < vocab_size; id += mean) ids.push_back(std::to_string(id));
  return ids;
}

json::object line_of_form(const TrainCommandOptions& options, const std::string& form,
                          const std::vector<json::object>& steps) {
  constexpr std::size_t kWarmUp = 2;
  check(steps.size() > kWarmUp, "a run of forms has steps behind the first two");
  const double begin = number(steps[kWarmUp - 1], "time");
  const double seconds = number(steps.back(), "time") - begin;
  const auto count = static_cast<double>(steps.size() - kWarmUp);
  double idle_engine = 0, idle_trainer = 0, tokens = 0, lag_mean = 0, lag_max = 0, transfer = 0;
  for (std::size_t i = kWarmUp; i < steps.size(); ++i) {
    const json::object& step = steps[i];
    // The synchronous loop has no lanes: its engine is idle when nothing is generated.
    idle_engine +=
        step.contains("perf/engine_idle_time")
            ? number(step, "perf/engine_idle_time") + number(step, "perf/engine_paused_time")
            : number(step, "perf/step_time") - number(step, "phase/generate");
    idle_trainer += number(step, "perf/train_wait_time");
    transfer += number(step, "perf/update_transfer_time") / count;
    tokens += number(step, "rollout/response_len/mean") *
              static_cast<double>(options.prompts * options.samples);
    lag_mean += number(step, "rollout/weight_version/lag_mean") / count;
    lag_max = std::max(lag_max, number(step, "rollout/weight_version/lag_max"));
  }
  return {{"name", options.name},
          {"form", form},
          {"value", count / seconds * 3600},
          {"unit", "steps per hour"},
          {"steps", static_cast<int64_t>(count)},
          {"trained_tokens_per_second", tokens / seconds},
          {"engine_idle_share", idle_engine / seconds},
          {"trainer_idle_share", idle_trainer / seconds},
          {"update_transfer_ms", 1e3 * transfer},
          {"lag_mean", lag_mean},
          {"lag_max", lag_max},
          {"mean_length", options.mean_length},
          {"new_tokens", options.new_tokens},
          {"prompts", options.prompts},
          {"samples", options.samples}};
}

void measure_train_forms(const TrainCommandOptions& options,
                         const std::vector<std::string>& forms) {
  for (const std::string& form : forms) flags_of_form(form, options);
  const int64_t vocab_size = read_shape(options.shape).vocab_size;
  std::map<std::string, double> rates;
  for (const std::string& form : forms) {
    const MadeUpRun run(options);
    const FormFlags how = flags_of_form(form, options);
    std::vector<std::string> words = run.command(options, how.subcommand);
    words.insert(words.end(), how.flags.begin(), how.flags.end());
    if (options.mean_length > 0) {
      words.emplace_back("--rollout-stop-token-ids");
      for (std::string& id : stop_ids(vocab_size, options.mean_length))
        words.push_back(std::move(id));
    }
    TrainCommand command(std::move(words), run.log());
    while (command.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    show_log(options, run.log());
    std::vector<json::object> steps;
    JsonLines lines(run.metrics().string());
    for (auto metrics = lines.next(); metrics; metrics = lines.next())
      steps.push_back(std::move(*metrics));
    const json::object line = line_of_form(options, form, steps);
    rates[form] = number(line, "value");
    write_json_line(line);
  }
  for (const std::string base : {"sync", "sync-apart"}) {
    if (!rates.contains(base)) continue;
    json::object ratios{{"name", options.name}, {"form", "ratios to " + base}};
    for (const auto& [form, rate] : rates) ratios[form] = rate / rates[base];
    write_json_line(ratios);
  }
}

void measure_first_step(const TrainCommandOptions& options) {
  const SystemClock clock;
  const MadeUpRun run(options);
  const auto start = clock.now();
  TrainCommand command(run.command(options), run.log());
  std::error_code ignored;
  while (command.is_running() &&
         (!fs::exists(run.metrics(), ignored) || fs::file_size(run.metrics(), ignored) == 0))
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const double seconds = seconds_between(start, clock.now());
  show_log(options, run.log());
  JsonLines lines(run.metrics().string());
  const json::object metrics = lines.next().value_or(json::object{});
  write_json_line({{"name", options.name},
                   {"value", seconds},
                   {"unit", "s"},
                   {"generate_seconds", number(metrics, "phase/generate")},
                   {"train_seconds", number(metrics, "phase/train")},
                   {"prompts", options.prompts},
                   {"samples", options.samples},
                   {"new_tokens", options.new_tokens}});
}

void measure_grpo_command(const TrainCommandOptions& options) {
  const MadeUpRun run(options);
  TrainCommand command(run.command(options), run.log());
  while (command.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  show_log(options, run.log());
  json::object best;
  JsonLines lines(run.metrics().string());
  for (auto metrics = lines.next(); metrics; metrics = lines.next()) {
    if (number(*metrics, "step") == 0) continue;
    if (best.empty() || number(*metrics, "perf/step_time") < number(best, "perf/step_time"))
      best = *metrics;
  }
  const double tokens = static_cast<double>(options.prompts * options.samples) *
                        number(best, "rollout/response_len/mean");
  json::object all;
  for (const auto& [name, value] : best) {
    if (name.starts_with("perf/") || name.starts_with("phase/")) all[name] = value;
  }
  write_json_line({{"name", options.name},
                   {"value", number(best, "perf/step_time")},
                   {"unit", "s"},
                   {"generated_tokens_per_second", tokens / number(best, "phase/generate")},
                   {"trained_tokens_per_second", number(best, "perf/actor_train_tok_per_s")},
                   {"train_tflops", number(best, "perf/actor_train_tflops")},
                   {"prompts", options.prompts},
                   {"samples", options.samples},
                   {"new_tokens", options.new_tokens},
                   {"metrics", all}});
}

void add_flags(Flags& flags, TrainCommandOptions& options) {
  flags.shape(options.shape);
  flags.add("--device", options.device, "Of the command: cuda or cpu");
  flags.count("--prompts", options.prompts, "Of a step");
  flags.count("--samples", options.samples, "Of each prompt");
  flags.count("--prompt-tokens", options.prompt_tokens, "Of each prompt");
  flags.count("--new-tokens", options.new_tokens, "Of each sample");
  flags.count("--max-tokens-per-gpu", options.micro_batch_tokens, "Of a micro-batch");
  flags.add_flag("--log", options.shows_log, "Print what the command says, to standard error");
  flags
      .add_option("--flags", options.more_flags,
                  "More flags of the command, in one word with spaces between them")
      ->delimiter(' ');
}

}  // namespace

int first_step(const std::string& name, Arguments arguments) {
  TrainCommandOptions options{.name = name};
  Flags flags("The command `slime train` to the end of its first optimizer step.", name);
  add_flags(flags, options);
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  measure_first_step(options);
  return 0;
}

int grpo_command(const std::string& name, Arguments arguments) {
  TrainCommandOptions options{.name = name, .steps = 4};
  Flags flags("Steps of `slime train`; the first does not count.", name);
  add_flags(flags, options);
  flags.range("--steps", options.steps, 2, 1000, "The best after the first counts");
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  measure_grpo_command(options);
  return 0;
}

int train_forms(const std::string& name, Arguments arguments) {
  TrainCommandOptions options{.name = name, .steps = 8};
  std::vector<std::string> forms{"sync", "one-step-ahead", "async-1", "async-4", "colocated"};
  Flags flags("Steps of `slime train` and `slime train-async`; the first two do not count.", name);
  add_flags(flags, options);
  flags.list("--forms", forms,
             "sync, april, one-step-ahead, async-K, colocated; sync-apart, april-apart, ... with "
             "engines on other devices; separated by commas");
  flags
      .add("--mean-length", options.mean_length,
           "Of the samples, which end at random; 0: all have --new-tokens")
      ->check(CLI::NonNegativeNumber);
  flags.count("--engines-apart", options.engines_apart, "Of forms that end in -apart");
  flags.range("--steps", options.steps, 3, 1000, "All but the first two count");
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  measure_train_forms(options, forms);
  return 0;
}

}  // namespace slime::bench
