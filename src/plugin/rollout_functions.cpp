#include "plugin/rollout_functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "net/frame_channel.h"
#include "plugin/read_sample.h"
#include "report/rollout_metrics.h"
#include "setup/scores.h"

namespace slime::plugin {
namespace {

using net::FrameError;

constexpr std::string_view kRolloutFlag = "--rollout-function-path";
constexpr std::string_view kEvalFlag = "--eval-function-path";

const json::object& object_named(const json::object& head, std::string_view name) {
  const json::value* value = head.if_contains(name);
  if (value == nullptr || !value->is_object())
    throw FrameError(fmt::format("the plug-in host answered without {}", name));
  return value->get_object();
}

/// Samples of one prompt are a group; those without group_index are groups of one.
std::vector<Group> groups_of(const json::value& records, const Columns& columns) {
  std::vector<Group> groups;
  if (!records.is_array()) throw FrameError("samples of an evaluation are a list");
  std::map<int64_t, std::size_t> known;
  int64_t ordinal = 0;
  for (const json::value& record : records.get_array()) {
    const json::object* object = record.if_object();
    if (object == nullptr) throw FrameError("samples of an evaluation are a flat list of samples");
    Sample sample = read_sample(*object, columns, {.ordinal = ordinal++}, {});
    const json::value* group = object->if_contains("group_index");
    std::size_t place = groups.size();
    if (group != nullptr && group->is_int64())
      place = known.try_emplace(group->get_int64(), place).first->second;
    if (place == groups.size())
      groups.push_back({.ordinal = static_cast<int64_t>(place), .samples = {}});
    Group& home = groups[place];
    sample.group = home.ordinal;
    sample.index_in_group = static_cast<int64_t>(home.samples.size());
    home.samples.push_back(std::move(sample));
  }
  return groups;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

/// Samples whose rewards the function returned beside them count by those.
void take_rewards(std::vector<Group>& groups, const std::vector<double>& rewards) {
  for (Group& group : groups) {
    for (Sample& sample : group.samples)
      sample.reward = rewards[static_cast<std::size_t>(sample.ordinal)];
  }
}

void add_data_set(report::EvalReport& report, const std::string& name, const json::object& data,
                  const Columns& columns, bool logs_pass_rate) {
  const json::value* rewards_word = data.if_contains("rewards");
  if (rewards_word == nullptr) throw FrameError(fmt::format("{}: no rewards", name));
  const std::vector<double> rewards = doubles(*rewards_word, columns);
  report::EvalScore score{.name = name, .mean_reward = mean_of(rewards), .groups = {}};
  const std::string prefix = "eval/" + name;
  report.metrics[prefix] = score.mean_reward;
  if (const json::value* truncated = data.if_contains("truncated");
      truncated != nullptr && truncated->is_array() && !truncated->get_array().empty()) {
    const auto count = std::ranges::count(truncated->get_array(), json::value(true));
    report.metrics[prefix + "-truncated_ratio"] =
        static_cast<double>(count) / static_cast<double>(truncated->get_array().size());
  }
  if (const json::value* samples = data.if_contains("samples")) {
    score.groups = groups_of(*samples, columns);
    if (samples->get_array().size() == rewards.size()) take_rewards(score.groups, rewards);
    report::add_metrics(report.metrics, report::sample_metrics(score.groups, "", prefix + "/"));
    if (logs_pass_rate)
      report::add_metrics(report.metrics, report::pass_at_k(score.groups, "", prefix + "-"));
  }
  report.scores.push_back(std::move(score));
}

}  // namespace

RolloutFunctions::RolloutFunctions(const config::RunConfig& config, Hosts& hosts,
                                   QuestionHandler& handler,
                                   std::function<int(std::string_view, const std::string&)> place)
    : config_(config), hosts_(hosts), question_handler_(handler), place_(std::move(place)) {}

Payload RolloutFunctions::call(std::string_view hook, std::string_view flag,
                               const std::string& path, int64_t step,
                               const QuestionHandler::AnswerPrompts& prompts,
                               const StopFlags& stop) const {
  Expected<Payload> returned =
      question_handler_.call(hosts_,
                             {.hook = place_(hook, path),
                              .subject = fmt::format("step {}", step),
                              .timeout = {},  // a step takes as long as it takes
                              .arguments =
                                  [step](Columns&) {
                                    return json::object{{"rollout_id", std::max<int64_t>(step, 0)}};
                                  },
                              .stop = {},
                              .answer = nullptr},
                             prompts, stop);
  if (!returned) throw ConfigError(fmt::format("{} {}: {}", flag, path, returned.error().message));
  return std::move(*returned);
}

/// Numbers; others have no place in the metrics.
report::Metrics RolloutFunctions::metrics_of(const Payload& returned, std::string_view flag) const {
  report::Metrics metrics;
  const json::value* words = returned.head.if_contains("metrics");
  if (words == nullptr || !words->is_object()) return metrics;
  for (const auto& member : words->get_object()) {
    if (member.value().is_number()) {
      metrics[std::string(member.key())] = member.value().to_number<double>();
    } else {
      hosts_.tell_once(fmt::format("{}: its metric {} is no number, and left out", flag,
                                   std::string_view(member.key())));
    }
  }
  return metrics;
}

ReturnedStep RolloutFunctions::draw(int64_t step, const QuestionHandler::AnswerPrompts& prompts,
                                    const StopFlags& stop) const {
  const std::string& path = config_.rollout_function_path;
  Payload returned = call("rollout", kRolloutFlag, path, step, prompts, stop);
  const json::value* groups = returned.head.if_contains("groups");
  if (groups == nullptr || !groups->is_array())
    throw ConfigError(
        fmt::format("{} {}: the plug-in host answered without groups", kRolloutFlag, path));
  report::Metrics metrics = metrics_of(returned, kRolloutFlag);
  return {.groups = groups->get_array(),
          .columns = std::move(returned.columns),
          .metrics = std::move(metrics)};
}

report::EvalReport RolloutFunctions::evaluate(int64_t step,
                                              const QuestionHandler::AnswerPrompts& prompts,
                                              const StopFlags& stop) const {
  const std::string& path = config_.eval_function_path;
  const Payload returned = call("evaluate", kEvalFlag, path, step, prompts, stop);
  report::EvalReport report;
  try {
    for (const auto& member : object_named(returned.head, "data")) {
      if (!member.value().is_object()) throw FrameError("a data set is a dictionary");
      add_data_set(report, std::string(member.key()), member.value().get_object(), returned.columns,
                   config_.log_passrate);
    }
  } catch (const FrameError& error) {
    throw ConfigError(fmt::format("{} {}: {}", kEvalFlag, path, error.what()));
  }
  report::add_metrics(report.metrics, metrics_of(returned, kEvalFlag));
  return report;
}

}  // namespace slime::plugin
