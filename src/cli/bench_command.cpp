#include "cli/bench_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>
#include <utility>
#include <vector>

#include "cli/json_lines.h"
#include "cli/options.h"
#include "core/clock.h"
#include "core/error.h"
#include "engine/workload.h"
#include "kernels/gpu/gpu.h"
#include "model/save.h"

extern char** environ;

namespace slime::cli {
namespace fs = std::filesystem;
namespace {

constexpr double kBound = 0.03;  // of the made-up weights: gradients of ordinary size

struct WorkloadsOptions {
  std::string name;
  std::string file = "bench/gpu/workloads.json";
  std::string device = "cuda";
  int64_t prompts = 8;
  int64_t samples = 8;
  int64_t prompt_tokens = 256;
  int64_t new_tokens = 128;
  int64_t micro_batch_tokens = 16384;
  int64_t steps = 1;
  bool shows_log = false;
};

/// Spellings of the 256 bytes in byte-level BPE: printable ones are themselves, the others follow
/// at 256.
json::object byte_vocabulary() {
  json::object vocabulary;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const int code = is_printable ? byte : next++;
    std::string spelling;
    if (code < 128) {
      spelling = static_cast<char>(code);
    } else {
      spelling = {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
    }
    vocabulary[spelling] = byte;
  }
  return vocabulary;
}

json::object byte_tokenizer() {
  const json::object byte_level{{"type", "ByteLevel"},
                                {"add_prefix_space", false},
                                {"trim_offsets", true},
                                {"use_regex", false}};
  return {{"version", "1.0"},
          {"added_tokens", json::array{}},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           json::object{{"type", "BPE"}, {"vocab", byte_vocabulary()}, {"merges", json::array{}}}}};
}

/// A folder with a model directory and a file of prompts; gone with this object.
class MadeUpRun {
 public:
  explicit MadeUpRun(const WorkloadsOptions& options)
      : root_(fs::temp_directory_path() / fmt::format("slime-bench-{}", ::getpid())) {
    const engine::WorkloadFile file = engine::read_workloads(options.file);
    const std::string model = "qwen3-" + options.name.substr(options.name.find_last_of('-') + 1);
    const auto shape = file.models.find(model);
    if (shape == file.models.end())
      throw ConfigError(
          fmt::format("{}: {} has no model \"{}\"", options.name, options.file, model));
    fs::create_directories(root_ / "model");
    const auto network =
        model::make_uniform_network(model::parse_model_config(shape->second, model),
                                    {.weights = at::kBFloat16, .activations = at::kFloat}, kBound);
    model::save_network(*network, root_ / "model");
    std::ofstream(root_ / "model" / "tokenizer.json") << json::serialize(byte_tokenizer());
    std::ofstream prompts(root_ / "prompts.jsonl");
    for (int64_t i = 0; i < options.prompts * options.steps; ++i) {
      std::string text = fmt::format("Prompt {}: ", i);
      while (static_cast<int64_t>(text.size()) < options.prompt_tokens)
        text += static_cast<char>('a' + (i * 7 + static_cast<int64_t>(text.size()) * 13) % 26);
      prompts << json::serialize(json::object{{"input", text}}) << "\n";
    }
  }
  MadeUpRun(const MadeUpRun&) = delete;
  MadeUpRun& operator=(const MadeUpRun&) = delete;
  ~MadeUpRun() {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }

  std::vector<std::string> command(const WorkloadsOptions& options) const {
    const auto number = [](int64_t value) { return std::to_string(value); };
    return {"slime",
            "train",
            "--device",
            options.device,
            "--hf-checkpoint",
            (root_ / "model").string(),
            "--prompt-data",
            (root_ / "prompts.jsonl").string(),
            "--run-dir",
            (root_ / "run").string(),
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
  }
  fs::path metrics() const { return root_ / "run" / "metrics.jsonl"; }
  fs::path log() const { return root_ / "train.log"; }

 private:
  fs::path root_;
};

/// This program once more; its output goes to a file. Killed with this object if it still runs.
class TrainCommand {
 public:
  TrainCommand(std::vector<std::string> words, const fs::path& log) : log_(log) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const int error =
        posix_spawn(&child_, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0)
      throw std::runtime_error(fmt::format("cannot start slime train: {}", std::strerror(error)));
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

void add_options(CLI::App& app, WorkloadsOptions& options) {
  const auto count = [&](const char* name, int64_t& value, const char* text) {
    app.add_option(name, value, text)->capture_default_str()->check(CLI::PositiveNumber);
  };
  app.add_option("--workloads-file", options.file, "Where the model's shape is")
      ->capture_default_str();
  app.add_option("--device", options.device, "Of the command: cuda or cpu")->capture_default_str();
  count("--prompts", options.prompts, "Of a step");
  count("--samples", options.samples, "Of each prompt");
  count("--prompt-tokens", options.prompt_tokens, "Of each prompt");
  count("--new-tokens", options.new_tokens, "Of each sample");
  count("--max-tokens-per-gpu", options.micro_batch_tokens, "Of a micro-batch");
  app.add_flag("--log", options.shows_log, "Print what the command says, to standard error");
}

void show_log(const WorkloadsOptions& options, const fs::path& log) {
  if (options.shows_log) std::cerr << std::ifstream(log).rdbuf();
}

double number(const json::object& metrics, const char* name) {
  const json::value* value = metrics.if_contains(name);
  return value == nullptr ? 0.0 : value->to_number<double>();
}

}  // namespace

int bench_first_step(std::span<const std::string> arguments) {
  WorkloadsOptions options;
  options.name = arguments.front();
  CLI::App app("The command `slime train` to the end of its first optimizer step.",
               "slime bench " + options.name);
  add_options(app, options);
  if (const auto exit_code = parse_options(app, arguments.subspan(1))) return *exit_code;
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
  return 0;
}

int bench_grpo_command(std::span<const std::string> arguments) {
  WorkloadsOptions options;
  options.name = arguments.front();
  options.prompts = 64;
  options.new_tokens = 512;
  options.steps = 4;
  CLI::App app("Steps of `slime train`; the first does not count.", "slime bench " + options.name);
  add_options(app, options);
  app.add_option("--steps", options.steps, "The best after the first counts")
      ->capture_default_str()
      ->check(CLI::Range(2, 1000));
  if (const auto exit_code = parse_options(app, arguments.subspan(1))) return *exit_code;
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
  return 0;
}

}  // namespace slime::cli
