#include "cli/eval_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "config/flag_table.h"
#include "core/error.h"

namespace slime::cli {
namespace {

struct ShortName {
  std::string_view name;  // "--temperature"
  std::string_view flag;  // of `slime train`
};

constexpr auto kShortNames = std::to_array<ShortName>({
    {"--samples", "--n-samples-per-eval-prompt"},
    {"--temperature", "--rollout-temperature"},
    {"--top-p", "--rollout-top-p"},
    {"--top-k", "--rollout-top-k"},
    {"--max-tokens", "--rollout-max-response-len"},
    {"--stop", "--rollout-stop"},
    {"--stop-token-ids", "--rollout-stop-token-ids"},
    {"--max-prompt-len", "--eval-max-prompt-len"},
    {"--max-context-len", "--rollout-max-context-len"},
});

/// Flags that may be given by their own names.
constexpr auto kTaken = std::to_array<std::string_view>({
    "--rm-type",
    "--custom-rm-path",
    "--reward-key",
    "--eval-reward-key",
    "--rm-url",
    "--no-rm-strict",
    "--remote-rm-attempts",
    "--reward-timeout-seconds",
    "--reward-threads",
    "--group-rm",
    "--input-key",
    "--label-key",
    "--metadata-key",
    "--tool-key",
    "--rename-columns",
    "--apply-chat-template",
    "--apply-chat-template-kwargs",
    "--eval-config",
    "--eval-min-new-tokens",
    "--eval-leave-out-failed",
    "--rollout-skip-special-tokens",
    "--custom-generate-function-path",
    "--rollout-sample-hook-path",
    "--custom-config-path",
    "--plugin-python",
    "--plugin-hosts",
    "--plugin-timeout-seconds",
    "--plugin-memory-gb",
    "--seed",
    "--device",
    "--dtype",
    "--bf16",
    "--fp16",
    "--fp32",
    "--num-threads",
    "--rollout-precision",
    "--kv-cache-gb",
    "--sglang-context-length",
    "--sglang-max-running-requests",
    "--sglang-server-concurrency",
    "--sglang-kv-cache-dtype",
});

void add_flag(CLI::App& app, std::string name, const config::FlagRow& row, EvalOptions& options) {
  const std::string flag(row.name);
  const std::string meaning(row.meaning);
  if (row.takes_values == 0 ||
      std::holds_alternative<config::Flag<bool> config::RunConfig::*>(row.member)) {
    app.add_flag_callback(
        std::move(name), [flag, &options] { options.words.push_back(flag); }, meaning);
    return;
  }
  CLI::Option* option = nullptr;
  if (config::value_word(row).ends_with("...")) {
    option = app.add_option_function<std::vector<std::string>>(
        std::move(name),
        [flag, &options](const std::vector<std::string>& values) {
          options.words.push_back(flag);
          options.words.insert(options.words.end(), values.begin(), values.end());
        },
        meaning);
  } else {
    option = app.add_option_function<std::string>(
        std::move(name),
        [flag, &options](const std::string& value) {
          options.words.insert(options.words.end(), {flag, value});
        },
        meaning);
  }
  option->type_name(std::string(config::value_word(row)));
}

}  // namespace

void add_eval_options(CLI::App& app, EvalOptions& options) {
  app.add_option("MODEL", options.model,
                 "a model directory, a model's name on Hugging Face's hub, or a run directory (its "
                 "newest checkpoint; RUN@120: that of step 120)");
  app.add_option("--data", options.data,
                 "NAME=FILE, or NAME=openai/gsm8k:test; may be given several times. Rows as slime "
                 "train reads them (docs/data.md)")
      ->expected(1, 1 << 20);
  app.add_option("--output", options.output,
                 "a file for the samples, JSON lines; a second start of the same command goes on "
                 "from it");
  app.add_flag("--json", options.as_json, "print the result as one JSON object");
  app.add_option("--compare", options.compare,
                 "two results of --json: the difference of the second to the first, by pairs")
      ->expected(2);
  for (const ShortName& each : kShortNames)
    add_flag(app, fmt::format("{},{}", each.name, each.flag), *config::find_flag(each.flag),
             options);
  for (const std::string_view name : kTaken)
    if (const config::FlagRow* row = config::find_flag(name))
      add_flag(app, std::string(name), *row, options);
}

std::vector<std::string> train_words(const EvalOptions& options, const std::string& model) {
  // What a run that only evaluates, once, before its first step, would be told.
  std::vector<std::string> words{"--hf-checkpoint",     model, "--eval-interval",      "1",
                                 "--num-rollout",       "1",   "--rollout-batch-size", "1",
                                 "--debug-rollout-only"};
  words.insert(words.end(), options.words.begin(), options.words.end());
  std::vector<std::string> pairs;
  std::set<std::string> names;
  for (const std::string& each : options.data) {
    const std::size_t equals = each.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == each.size())
      throw ConfigError(fmt::format("--data {}: should be NAME=FILE", each));
    const std::string name = each.substr(0, equals);
    if (!names.insert(name).second)
      throw ConfigError(fmt::format("--data {}: {} is the name of another set", each, name));
    pairs.push_back(name);
    pairs.push_back(each.substr(equals + 1));
  }
  const bool has_file = std::ranges::find(words, "--eval-config") != words.end();
  if (pairs.empty() && !has_file)
    throw ConfigError("--data NAME=FILE: what should be evaluated is missing");
  if (!pairs.empty() && has_file)
    throw ConfigError("--data and --eval-config: both say what is evaluated; give one");
  if (!pairs.empty()) {
    words.emplace_back("--eval-prompt-data");
    words.insert(words.end(), pairs.begin(), pairs.end());
  }
  // Prompts of training are never read; a run has to have some.
  words.insert(words.end(), {"--prompt-data", pairs.empty() ? "(none)" : pairs[1]});
  return words;
}

}  // namespace slime::cli
