#include "cli/bench_train_commands.h"

#include <vector>

#include "bench/train_command.h"

namespace slime::cli {

namespace {

void add_train_command(CLI::App& app, bench::TrainCommandOptions& options) {
  app.add_option("--device", options.device, "Of the command: cuda or cpu")->capture_default_str();
  add_count(app, "--prompts", options.prompts, "Of a step");
  add_count(app, "--samples", options.samples, "Of each prompt");
  add_count(app, "--prompt-tokens", options.prompt_tokens, "Of each prompt");
  add_count(app, "--new-tokens", options.new_tokens, "Of each sample");
  add_count(app, "--max-tokens-per-gpu", options.micro_batch_tokens, "Of a micro-batch");
  app.add_flag("--log", options.shows_log, "Print what the command says, to standard error");
  app.add_option("--flags", options.more_flags,
                 "More flags of the command, in one word with spaces between them")
      ->delimiter(' ');
}

}  // namespace

int first_step(const std::string& name, std::string size, Arguments arguments) {
  CLI::App app("The command `slime train` to the end of its first optimizer step.",
               "slime bench " + name);
  bench::TrainCommandOptions options;
  name_shape(app, options, name, size);
  add_train_command(app, options);
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  bench::measure_first_step(options);
  return 0;
}

int grpo_command(const std::string& name, std::string size, Arguments arguments) {
  CLI::App app("Steps of `slime train`; the first does not count.", "slime bench " + name);
  bench::TrainCommandOptions options;
  name_shape(app, options, name, size);
  options.prompts = 64;
  options.new_tokens = 512;
  options.steps = 4;
  add_train_command(app, options);
  app.add_option("--steps", options.steps, "The best after the first counts")
      ->capture_default_str()
      ->check(CLI::Range(2, 1000));
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  bench::measure_grpo_command(options);
  return 0;
}

int train_forms(const std::string& name, std::string size, Arguments arguments) {
  CLI::App app("Steps of `slime train` and `slime train-async`; the first two do not count.",
               "slime bench " + name);
  bench::TrainCommandOptions options;
  std::vector<std::string> forms{"sync", "one-step-ahead", "async-1", "async-4", "colocated"};
  name_shape(app, options, name, size);
  options.prompts = 32;
  options.new_tokens = 4096;
  options.mean_length = 512;
  options.steps = 8;
  add_train_command(app, options);
  app.add_option(
         "--forms", forms,
         "sync, april, one-step-ahead, async-K, colocated; sync-apart, april-apart, ... with "
         "engines on other devices; separated by commas")
      ->capture_default_str()
      ->delimiter(',');
  app.add_option("--mean-length", options.mean_length,
                 "Of the samples, which end at random; 0: all have --new-tokens")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  add_count(app, "--engines-apart", options.engines_apart, "Of forms that end in -apart");
  app.add_option("--steps", options.steps, "All but the first two count")
      ->capture_default_str()
      ->check(CLI::Range(3, 1000));
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  bench::measure_train_forms(options, forms);
  return 0;
}

}  // namespace slime::cli
