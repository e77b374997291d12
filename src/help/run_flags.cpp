#include "help/run_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>
#include <variant>

#include "config/foreign_flags.h"
#include "config/parse_flags.h"
#include "config/validate.h"
#include "core/error.h"

namespace slime::help {
namespace {

using config::FlagGroup;
using config::FlagRow;
using config::FlagStatus;

Names names_of_value(std::string_view flag) {
  static constexpr std::string_view kModels[] = {"--hf-checkpoint", "--ref-load", "--critic-load",
                                                 "--opd-teacher-load"};
  static constexpr std::string_view kData[] = {"--prompt-data", "--eval-prompt-data"};
  static constexpr std::string_view kFolders[] = {"--run-dir",
                                                  "--save",
                                                  "--load",
                                                  "--wandb-dir",
                                                  "--dump-details",
                                                  "--rollout-data-dir",
                                                  "--update-weight-disk-dir"};
  if (std::ranges::find(kModels, flag) != std::end(kModels)) return Names::kModel;
  if (std::ranges::find(kData, flag) != std::end(kData)) return Names::kData;
  if (std::ranges::find(kFolders, flag) != std::end(kFolders)) return Names::kFolder;
  if (flag.ends_with("-path") || flag.ends_with("-config") || flag == "--custom-loss-library" ||
      flag == "--plugin-python" || flag.ends_with("-rollout-data"))
    return Names::kFile;
  return Names::kNothing;
}

std::string meaning_of(const FlagRow& flag) {
  switch (flag.status) {
    case FlagStatus::kAccepted: {
      std::string text = fmt::format("no effect: {}", flag.meaning);
      for (const config::ConditionalReason& reason : flag.reasons)
        text += fmt::format("; with {}: {}", reason.where.words, reason.why);
      return text;
    }
    case FlagStatus::kRefused:
      return fmt::format("refused: {}", flag.meaning);
    default:
      return std::string(flag.meaning);
  }
}

Option option_of(const FlagRow& flag) {
  Option option{
      .names = {std::string(flag.name)},
      .value = std::string(config::value_word(flag)),
      .meaning = meaning_of(flag),
      .section = std::string(config::group_title(flag.group)),
      .value_names = names_of_value(flag.name),
      .is_idle = flag.status == FlagStatus::kAccepted || flag.status == FlagStatus::kRefused};
  for (const std::string_view choice : flag.choices) option.choices.emplace_back(choice);
  if (flag.status == FlagStatus::kWorks) option.fallback = config::default_text(flag);
  return option;
}

/// Flags that say the same with other names.
std::vector<std::string_view> other_names(const FlagRow& flag) {
  std::vector<std::string_view> names;
  for (const FlagRow& row : config::flag_table()) {
    if (row.status != FlagStatus::kAlias) continue;
    const auto targets = row.alias.targets();
    if (std::ranges::find(targets, flag.name) != targets.end()) names.push_back(row.name);
  }
  return names;
}

std::vector<std::string> paragraphs_of(const Option& option) {
  const FlagRow* flag = config::find_flag(option.names[0]);
  if (flag == nullptr) return {};
  std::vector<std::string> paragraphs;
  if (flag->counts && flag->status != FlagStatus::kAccepted)
    paragraphs.push_back(fmt::format("It counts with: {}.", flag->counts->words));
  if (flag->status == FlagStatus::kAlias) {
    std::vector<std::string_view> targets = flag->alias.targets();
    std::ranges::sort(targets);
    targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
    paragraphs.push_back(fmt::format("It stands for {}.", fmt::join(targets, ", ")));
  }
  if (const auto names = other_names(*flag); !names.empty())
    paragraphs.push_back(fmt::format("Also set by {}.", fmt::join(names, ", ")));
  if (const auto rules = rules_of(*flag); !rules.empty())
    paragraphs.push_back(fmt::format("Rules: {}.", fmt::join(rules, "; ")));
  std::string key(flag->name.substr(2));
  std::ranges::replace(key, '-', '_');
  paragraphs.push_back(fmt::format("In the YAML file of --config: {}. In Python: {}=.", key, key));
  return paragraphs;
}

/// Sentences about `flag` that the rules have where it is given these words.
std::vector<std::string> sentences_about(const FlagRow& flag,
                                         const std::vector<std::string>& values) {
  std::vector<std::string> words{std::string(flag.name)};
  words.insert(words.end(), values.begin(), values.end());
  std::string problems;
  try {
    config::ParsedFlags parsed = config::parse_flags(words);
    config::complete_and_validate(parsed);
  } catch (const ConfigError& error) {
    problems = error.what();
  }
  std::vector<std::string> sentences;
  std::istringstream lines(problems);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(flag.name)) continue;
    const char behind = line.size() > flag.name.size() ? line[flag.name.size()] : '\0';
    const std::size_t colon = line.find(": ");
    if ((behind != ' ' && behind != ':') || colon == line.npos) continue;
    sentences.push_back(line.substr(colon + 2));
  }
  return sentences;
}

/// Values near which rules change.
std::vector<std::string> values_to_try(const FlagRow& flag) {
  if (!flag.choices.empty()) return {flag.choices.begin(), flag.choices.end()};
  const std::string_view word = config::value_word(flag);
  if (word.empty()) return {""};
  if (word == "N") return {"-1", "0", "1", "2"};
  if (word == "X") return {"-1", "0", "0.5", "1", "2"};
  return {};
}

std::vector<std::string> flags_of(const FlagTopic& topic) {
  std::vector<std::string> names;
  for (const std::string_view name : topic.flags) names.emplace_back(name);
  for (const FlagRow& flag : config::flag_table()) {
    if (std::ranges::find(topic.flags, flag.name) != topic.flags.end()) continue;
    const bool begins_so = std::ranges::any_of(
        topic.prefixes, [&](std::string_view prefix) { return flag.name.starts_with(prefix); });
    if (begins_so || std::ranges::find(topic.groups, flag.group) != topic.groups.end())
      names.emplace_back(flag.name);
  }
  return names;
}

}  // namespace

const std::vector<FlagTopic>& flag_topics() {
  using enum FlagGroup;
  static const std::vector<FlagTopic> kTopics{
      {"model", "Model and checkpoints", "docs/models.md", {kModel}, {"--config"}},
      {"data", "Data", "docs/data.md", {kData}},
      {"reward", "Reward", "docs/rewards.md", {kReward}},
      {"sampling",
       "Sampling of responses",
       "docs/rewards.md",
       {kRollout},
       {},
       {"--eval-t", "--eval-m"}},
      {"algorithm", "Algorithm", "docs/objectives.md", {kAlgorithm}},
      {"optimizer", "Optimizer", "", {kOptimizer}},
      {"batches", "Batches", "", {kBatch}, {"--rollout-batch-size", "--n-samples-per-prompt"}},
      {"evaluation", "Evaluation", "docs/data.md", {kEval}},
      {"engine", "Engine", "docs/server.md", {kEngine}},
      {"memory",
       "Memory",
       "docs/gpu.md",
       {},
       {"--max-tokens-per-gpu", "--use-dynamic-batch-size", "--micro-batch-size",
        "--recompute-granularity", "--recompute-activations", "--optimizer-cpu-offload",
        "--kv-cache-gb", "--sglang-mem-fraction-static", "--sglang-max-running-requests",
        "--sglang-kv-cache-dtype", "--rollout-precision", "--offload", "--offload-rollout",
        "--no-offload-rollout", "--colocate", "--use-stateless-adam", "--plugin-memory-gb",
        "--rollout-files-gb", "--dtype"}},
      {"devices",
       "Devices and hosts",
       "docs/parallel.md",
       {kParallel},
       {"--device", "--num-threads", "--colocate", "--rollout-num-gpus",
        "--rollout-num-gpus-per-engine", "--rollout-external-engine-addrs"}},
      {"checkpoints",
       "Checkpoints, and going on",
       "docs/resume.md",
       {},
       {"--run-dir", "--save", "--save-interval", "--keep-checkpoints", "--load", "--ref-load",
        "--ckpt-step", "--overwrite", "--allow-other-experiment", "--finetune",
        "--start-rollout-id", "--no-save-optim", "--no-load-optim", "--reset-optimizer-states",
        "--critic-load"}},
      {"async",
       "Generation beside training (slime train-async)",
       "docs/async.md",
       {kAsync},
       {},
       {"--update-weight"}},
      {"output", "What is written", "docs/metrics.md", {kOutput}},
      {"plugins",
       "Functions of your own",
       "docs/plugins.md",
       {},
       {"--data-source-path", "--buffer-filter-path", "--dynamic-sampling-filter-path",
        "--rollout-sample-hook-path", "--rollout-sample-filter-path",
        "--rollout-all-samples-process-path", "--rollout-data-postprocess-path",
        "--rollout-function-path", "--eval-function-path", "--generate-timeout-seconds"},
       {"--custom-", "--plugin-"}},
      {"shape", "Model shape", "docs/models.md", {kShape}},
  };
  return kTopics;
}

const std::vector<Section>& first_flags() {
  static const std::vector<Section> kFirst{
      {"Model and data",
       {"--hf-checkpoint", "--prompt-data", "--input-key", "--label-key", "--apply-chat-template"}},
      {"Reward", {"--rm-type", "--custom-rm-path"}},
      {"Each step",
       {"--rollout-batch-size", "--n-samples-per-prompt", "--rollout-max-response-len",
        "--rollout-temperature", "--num-rollout"}},
      {"Learning", {"--advantage-estimator", "--loss-type", "--lr", "--global-batch-size"}},
      {"Run",
       {"--run-dir", "--save-interval", "--eval-prompt-data", "--eval-interval", "--view",
        "--report-to"}},
      {"Devices", {"--device", "--actor-num-gpus-per-node", "--rollout-num-gpus"}},
      {"Before it begins", {"--dry-run"}},
  };
  return kFirst;
}

std::vector<std::string> rules_of(const FlagRow& flag) {
  if (flag.status != FlagStatus::kWorks) return {};
  std::vector<std::string> rules;
  for (const std::string& value : values_to_try(flag)) {
    const auto found =
        sentences_about(flag, value.empty() ? std::vector<std::string>() : std::vector{value});
    for (const std::string& sentence : found) {
      const std::string rule =
          flag.choices.empty() ? sentence : fmt::format("{}: {}", value, sentence);
      if (std::ranges::find(rules, rule) == rules.end()) rules.push_back(rule);
    }
  }
  return rules;
}

Manual run_manual(std::string command, std::string summary, std::vector<std::string> usage) {
  Manual manual{.command = std::move(command),
                .summary = std::move(summary),
                .usage = std::move(usage),
                .first = first_flags()};
  for (const FlagTopic& topic : flag_topics()) {
    manual.topics.push_back({.word = std::string(topic.word),
                             .title = std::string(topic.title),
                             .page = std::string(topic.page),
                             .names = flags_of(topic)});
  }
  manual.options.push_back(
      {.names = {"--config"},
       .value = "FILE",
       .meaning = "YAML file of flags, without the dashes; the command line wins",
       .section = "Model and checkpoints",
       .value_names = Names::kFile});
  for (const FlagRow& flag : config::flag_table()) manual.options.push_back(option_of(flag));
  manual.details = paragraphs_of;
  manual.hint = [](const std::string& word) {
    std::string flag = word.starts_with("-") ? word : "--" + word;
    std::ranges::replace(flag, '_', '-');
    const auto ours = config::our_words_for(flag);
    return ours ? fmt::format("; here it is {}", *ours) : std::string();
  };
  return manual;
}

}  // namespace slime::help
