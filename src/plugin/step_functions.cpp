#include "plugin/step_functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "net/frame_channel.h"
#include "plugin/group_record.h"
#include "plugin/sample_record.h"

namespace slime::plugin {
namespace {

[[noreturn]] void fail(std::string_view flag, const std::string& path, const std::string& why) {
  throw ConfigError(fmt::format("{} {}: {}", flag, path, why));
}

int64_t first_ordinal(const Group& group) { return group.samples.front().ordinal; }

/// The groups as they were, with what a function changed in their samples.
void take_changes(const Expected<Payload>& returned, std::string_view flag, const std::string& path,
                  std::string_view who, std::vector<Group>& groups) {
  if (!returned) fail(flag, path, returned.error().message);
  try {
    plugin::take_changes({.value = returned->head, .columns = returned->columns}, who, groups);
  } catch (const net::FrameError& error) {
    fail(flag, path, error.what());
  }
}

json::array flat_records(const std::vector<Group>& groups, Columns& columns) {
  json::array records;
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) records.push_back(to_record(sample, columns));
  }
  return records;
}

/// Of the samples of an evaluation set, in their order.
json::object eval_record(const report::EvalScore& score, const std::string& key, Columns& columns) {
  json::array rewards, truncated;
  for (const Group& group : score.groups) {
    for (const Sample& sample : group.samples) {
      rewards.push_back(sample.reward.is_null() ? 0.0 : sample.reward_value(key));
      truncated.push_back(sample.status == Status::kTruncated);
    }
  }
  return {{"rewards", std::move(rewards)},
          {"truncated", std::move(truncated)},
          {"samples", flat_records(score.groups, columns)}};
}

json::object words_of(const report::Metrics& metrics) {
  json::object words;
  for (const auto& [name, value] : metrics) words[name] = value;
  return words;
}

std::vector<std::size_t> places(const Payload& returned, std::string_view name) {
  const json::value* word = returned.head.if_contains(name);
  if (word == nullptr) throw net::FrameError(fmt::format("an answer without {}", name));
  std::vector<std::size_t> all;
  for (const int64_t place : whole_numbers(*word, returned.columns))
    all.push_back(static_cast<std::size_t>(place));  // one below 0 is none of them either
  return all;
}

std::string name_of_step(int64_t step) { return fmt::format("step {}", step); }

bool says_handled(const Payload& returned) {
  const json::value* handled = returned.head.if_contains("handled");
  return handled != nullptr && handled->is_bool() && handled->get_bool();
}

}  // namespace

StepFunctions::StepFunctions(const config::RunConfig& config, Hosts& hosts,
                             QuestionHandler& handler,
                             std::function<int(std::string_view, const std::string&)> place)
    : config_(config),
      functions_(config::users_functions(config)),
      hosts_(hosts),
      question_handler_(handler),
      place_(std::move(place)) {}

Call StepFunctions::call(std::string_view hook, const std::string& path, std::string subject,
                         std::function<json::object(Columns&)> arguments) const {
  return {.hook = place_(hook, path),
          .subject = std::move(subject),
          .timeout = std::chrono::duration<double>(config_.plugin_timeout_seconds),
          .arguments = std::move(arguments),
          .stop = {},
          .answer = nullptr};
}

void StepFunctions::filter_samples(int64_t step, std::vector<Group>& groups) const {
  const std::string& path = config_.rollout_sample_filter_path;
  if (path.empty()) return;
  const auto arguments = [&groups](Columns& columns) {
    return json::object{{"groups", to_records(groups, columns)}};
  };
  take_changes(
      question_handler_.call(hosts_, call("sample_filter", path, name_of_step(step), arguments)),
      "--rollout-sample-filter-path", path, "sample filter", groups);
}

buffer::ChooseWaitingFn StepFunctions::choose_waiting() const {
  const auto named = std::ranges::find(functions_, "buffer_filter", &config::UsersFunction::hook);
  if (named == functions_.end()) return nullptr;
  return [this, path = named->path](const std::deque<Group>& waiting, int64_t count) {
    const auto arguments = [&waiting, count](Columns& columns) {
      json::array buffer;
      for (const Group& group : waiting) buffer.push_back(to_records(group, columns));
      return json::object{{"buffer", std::move(buffer)}, {"num_samples", count}};
    };
    const auto returned =
        question_handler_.call(hosts_, call("buffer_filter", path, "the buffer", arguments));
    if (!returned) fail("--buffer-filter-path", path, returned.error().message);
    try {
      return buffer::WaitingChoice{.taken = places(*returned, "taken"),
                                   .left = places(*returned, "left")};
    } catch (const net::FrameError& error) {
      fail("--buffer-filter-path", path, error.what());
    }
  };
}

void StepFunctions::process_all(int64_t step, std::vector<Group>& kept, std::vector<Group> dropped,
                                const QuestionHandler::AnswerPrompts& prompts) const {
  const std::string& path = config_.rollout_all_samples_process_path;
  if (path.empty()) return;
  const std::size_t num_kept = kept.size();
  std::vector<Group> all = std::move(kept);
  std::ranges::move(dropped, std::back_inserter(all));
  std::vector<std::size_t> order(all.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, {}, [&all](std::size_t i) { return first_ordinal(all[i]); });
  std::vector<Group> sorted;
  for (const std::size_t i : order) sorted.push_back(std::move(all[i]));
  const auto arguments = [&sorted](Columns& columns) {
    return json::object{{"groups", to_records(sorted, columns)}};
  };
  take_changes(question_handler_.call(
                   hosts_, call("all_samples", path, name_of_step(step), arguments), prompts),
               "--rollout-all-samples-process-path", path, "process", sorted);
  kept.resize(num_kept);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] < num_kept) kept[order[i]] = std::move(sorted[i]);
  }
}

bool StepFunctions::log_rollout(int64_t step, const report::Collected& collected) const {
  const std::string& path = config_.custom_rollout_log_function_path;
  if (path.empty()) return false;
  const auto arguments = [&collected, step](Columns& columns) {
    return json::object{{"rollout_id", step},
                        {"samples", flat_records(collected.groups, columns)},
                        {"rollout_extra_metrics", words_of(collected.metrics)},
                        {"rollout_time", collected.seconds}};
  };
  const auto returned =
      question_handler_.call(hosts_, call("rollout_log", path, name_of_step(step), arguments));
  if (returned) return says_handled(*returned);
  hosts_.tell(
      fmt::format("--custom-rollout-log-function-path {}: {}", path, returned.error().message));
  return false;
}

void StepFunctions::at_weight_update(std::string_view moment, int64_t step,
                                     WeightVersion version) const {
  if (!config::has_users_rollout(config_)) return;
  const std::string& path = config_.rollout_function_path;
  const auto arguments = [&](Columns&) {
    return json::object{{"moment", moment}, {"rollout_id", step}, {"version", version}};
  };
  const auto returned =
      question_handler_.call(hosts_, call("weight_update", path, name_of_step(step), arguments));
  if (!returned)
    fail("--rollout-function-path", path, fmt::format("{}: {}", moment, returned.error().message));
}

void StepFunctions::after_write(const std::filesystem::path& version_folder) const {
  const std::string& path = config_.custom_update_weight_post_write_path;
  if (path.empty()) return;
  const auto arguments = [&](Columns&) {
    return json::object{{"version_dir", version_folder.string()}};
  };
  const auto returned = question_handler_.call(
      hosts_, call("post_write", path, version_folder.filename().string(), arguments));
  if (!returned) fail("--custom-update-weight-post-write-path", path, returned.error().message);
}

void StepFunctions::log_evaluation(int64_t step, report::EvalReport& report) const {
  const std::string& path = config_.custom_eval_rollout_log_function_path;
  if (path.empty() || report.scores.empty()) return;
  const auto arguments = [&](Columns& columns) {
    json::object data;
    for (const report::EvalScore& score : report.scores)
      data[score.name] = eval_record(score, config_.eval_reward_key, columns);
    return json::object{{"rollout_id", std::max<int64_t>(step, 0)}, {"data", std::move(data)}};
  };
  report.logged = question_handler_.logged_by([&] {
    const auto returned =
        question_handler_.call(hosts_, call("eval_log", path, name_of_step(step), arguments));
    if (returned) {
      report.is_logged = says_handled(*returned);
    } else {
      hosts_.tell(fmt::format("--custom-eval-rollout-log-function-path {}: {}", path,
                              returned.error().message));
    }
  });
}

}  // namespace slime::plugin
