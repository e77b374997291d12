#include "cli/eval.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "cli/by_name.h"
#include "cli/device.h"
#include "cli/eval_flags.h"
#include "cli/options.h"
#include "cli/run_model.h"
#include "config/validate.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/json_lines.h"
#include "core/program_version.h"
#include "core/safe_text.h"
#include "evaluate/comparison.h"
#include "evaluate/evaluate.h"
#include "setup/run_devices.h"

namespace slime::cli {
namespace {

using std::chrono::steady_clock;

int compare(const EvalOptions& options) {
  const auto first = evaluate::read_result(options.compare[0]);
  const auto second = evaluate::read_result(options.compare[1]);
  const auto differences = evaluate::compare(first, second);
  for (const std::string& name : evaluate::unpaired_sets(first, second, differences))
    fmt::print(stderr, "slime eval: {} is left out: no prompt of it is in both results\n", name);
  if (options.as_json)
    write_json_line(json::object{{"first", options.compare[0]},
                                 {"second", options.compare[1]},
                                 {"sets", evaluate::to_json(differences)}});
  else
    fmt::print("{}", evaluate::table_of(differences));
  return 0;
}

/// A line that is redrawn on a terminal; elsewhere one every half minute.
class ProgressLine {
 public:
  void show(int64_t prompts, int64_t of, int64_t tokens) {
    const auto now = steady_clock::now();
    const auto interval = is_terminal_ ? std::chrono::milliseconds(250) : std::chrono::seconds(30);
    if (now - last_ < interval) return;
    last_ = now;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    const std::string line = fmt::format("slime eval: {} of {} prompts, {:.0f} tokens/s", prompts,
                                         of, static_cast<double>(tokens) / std::max(seconds, 1e-3));
    fmt::print(stderr, "{}{}{}", is_terminal_ ? "\r" : "", line, is_terminal_ ? "\033[K" : "\n");
    std::fflush(stderr);
    is_open_ = is_terminal_;
  }
  void end() {
    if (is_open_) std::fputs("\r\033[K", stderr);
    is_open_ = false;
  }

 private:
  const bool is_terminal_ = ::isatty(STDERR_FILENO) != 0;
  const steady_clock::time_point begin_ = steady_clock::now();
  steady_clock::time_point last_ = begin_;
  bool is_open_ = false;
};

config::ParsedFlags flags_of(const EvalOptions& options, const ModelPlace& model) {
  config::ParsedFlags flags = config::parse_flags(train_words(options, model.directory.string()));
  const std::string place = setup::choose_device(flags.config);
  find_names(flags, hub::Wanted::kModel, /*may_download=*/true, "slime eval");
  config::complete_and_validate(flags);
  fmt::print(stderr, "slime eval: {}\n", place);
  return flags;
}

int64_t kv_cache_bytes(const config::RunConfig& config) {
  return kv_cache_bytes_of(
      {.device = config.device.peek(), .kv_cache_gib = config.kv_cache_gb.peek()});
}

}  // namespace

int eval(std::span<const std::string> arguments) {
  EvalOptions options;
  CLI::App app(
      "Scores of a model on data sets: mean reward, pass@k, and their 95 % intervals over "
      "prompts.\n\n  slime eval MODEL --data gsm8k=test.jsonl --rm-type math --input-key question "
      "--label-key answer\n  slime eval --compare before.json after.json",
      "slime eval");
  add_eval_options(app, options);
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  if (!options.compare.empty()) return compare(options);
  // Behind --data it is taken for one of the sets.
  if (options.model.empty() && !options.data.empty() &&
      options.data.back().find('=') == std::string::npos) {
    options.model = options.data.back();
    options.data.pop_back();
  }
  if (options.model.empty())
    throw ConfigError("MODEL is missing: slime eval MODEL --data NAME=FILE");
  core::Interrupt interrupt;
  const ModelPlace model = model_of_word(options.model, "slime eval");
  const config::ParsedFlags flags = flags_of(options, model);
  ProgressLine line;
  const evaluate::EvaluateOptions how{
      .adapter = model.adapter,
      .output = options.output,
      .kv_cache_bytes = [&flags] { return kv_cache_bytes(flags.config); },
      .say =
          [&line](const std::string& sentence) {
            line.end();
            fmt::print(stderr, "slime eval: {}\n", safe_text(sentence));
          },
      .on_progress = [&line](int64_t prompts, int64_t of,
                             int64_t tokens) { line.show(prompts, of, tokens); }};
  const steady_clock::time_point begin = steady_clock::now();
  const evaluate::EvaluationResult result = evaluate::evaluate(flags, how);
  line.end();
  if (result.is_broken_off) {
    fmt::print(stderr, "slime eval: broken off{}\n",
               options.output.empty()
                   ? "; with --output FILE a second start would go on"
                   : "; the same command goes on from what is in " + options.output);
    return interrupt.exit_code();
  }
  if (result.num_kept > 0)
    fmt::print(stderr, "slime eval: {} of {} prompts are from an earlier start\n", result.num_kept,
               result.num_prompts);
  if (result.has_only_failed)
    fmt::print(stderr,
               "slime eval: every sample failed: the numbers say nothing about the model\n");
  const int exit_code = result.has_only_failed ? 1 : 0;
  if (!options.as_json) {
    fmt::print("{}", evaluate::table_of(result.sets));
    return exit_code;
  }
  json::array sets;
  for (const evaluate::SetResult& set : result.sets) sets.push_back(evaluate::to_json(set));
  const double seconds = std::chrono::duration<double>(steady_clock::now() - begin).count();
  write_json_line(json::object{{"model", options.model},
                               {"program", program_version()},
                               {"settings", result.settings},
                               {"seconds", seconds},
                               {"sets", std::move(sets)}});
  return exit_code;
}

}  // namespace slime::cli
