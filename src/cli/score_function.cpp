#include "cli/score_function.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <future>
#include <iostream>
#include <iterator>
#include <utility>

#include "config/parse_flags.h"
#include "core/safe_text.h"
#include "plugin/reward.h"

namespace slime::cli {
namespace {

namespace fs = std::filesystem;

/// A function may say that a sample has failed, without an exception.
Expected<json::value> reward_of(const Expected<Sample>& scored) {
  if (!scored) return failure(scored.error().message);
  if (scored->status == Status::kFailed) return failure("the function set status to failed");
  return scored->reward;
}

/// As in a run: the function's own flags, and all others.
json::object arguments_of(const ScoreFunctionConfig& config) {
  json::object arguments = config.own_flags;
  for (const auto& flag : config::flags_for_users(config.flags))
    arguments[flag.key()] = flag.value();
  return arguments;
}

/// What functions printed, as it stands in the logs of their host; on a terminal safe, for they print responses.
void show_output(const fs::path& logs) {
  std::error_code is_gone;
  for (const fs::directory_entry& entry : fs::directory_iterator(logs, is_gone)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    std::cerr << (::isatty(STDERR_FILENO) == 0 ? text : safe_text(text)) << std::flush;
  }
}

}  // namespace

ScoreFunction::ScoreFunction(ScoreFunctionConfig config)
    : config_(std::move(config)),
      timeout_(config_.timeout_seconds),
      questions_(config_.flags),
      hosts_(std::make_unique<plugin::Hosts>(plugin::HostsConfig{
          .python = config_.flags.plugin_python,
          .logs = logs_.path(),
          .flags = arguments_of(config_),
          .hooks = {{"reward", config_.path}},
          .on_question = [this](plugin::Question question, plugin::ReplyFn reply) {
            questions_.take(std::move(question), std::move(reply));
          }})) {
  hosts_->tell_by([this](const std::string& text) {
    // The log is shown at the end, and is gone then.
    const bool is_of_log = text.find(logs_.path().string()) != std::string::npos;
    if (config_.shows_what_it_says && !is_of_log)
      std::fputs((safe_text(text) + "\n").c_str(), stderr);
  });
}

ScoreFunction::~ScoreFunction() {
  hosts_.reset();
  if (config_.shows_what_it_says) show_output(logs_.path());
}

std::vector<Expected<json::value>> ScoreFunction::score(const std::vector<Sample>& samples) {
  if (config_.takes_groups) return score_groups(samples);
  std::vector<std::future<Expected<Sample>>> answers;
  for (const Sample& sample : samples) {
    const auto answer = std::make_shared<std::promise<Expected<Sample>>>();
    answers.push_back(answer->get_future());
    plugin::score(*hosts_, 0, timeout_, sample, {},
                  [answer](Expected<Sample> scored) { answer->set_value(std::move(scored)); });
  }
  std::vector<Expected<json::value>> rewards;
  for (auto& answer : answers) rewards.push_back(reward_of(answer.get()));
  return rewards;
}

std::vector<Expected<json::value>> ScoreFunction::score_groups(const std::vector<Sample>& samples) {
  std::vector<std::pair<std::size_t, std::future<Expected<Group>>>> answers;  // with their sizes
  for (std::size_t i = 0; i < samples.size();) {
    Group group{.ordinal = samples[i].group, .samples = {}};
    for (; i < samples.size() && samples[i].group == group.ordinal; ++i)
      group.samples.push_back(samples[i]);
    const auto answer = std::make_shared<std::promise<Expected<Group>>>();
    answers.emplace_back(group.samples.size(), answer->get_future());
    plugin::score_group(*hosts_, 0, timeout_, std::move(group), {},
                        [answer](Expected<Group> scored) { answer->set_value(std::move(scored)); });
  }
  std::vector<Expected<json::value>> rewards;
  for (auto& [size, answer] : answers) {
    const Expected<Group> scored = answer.get();
    for (std::size_t i = 0; i < size; ++i) {
      rewards.push_back(scored ? reward_of(scored->samples[i])
                               : Expected<json::value>(failure(scored.error().message)));
    }
  }
  return rewards;
}

}  // namespace slime::cli
