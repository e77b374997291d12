#include "report/learning_signal.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/reward_number.h"

namespace slime::report {
namespace {

constexpr int kAsksAfter = 3;
constexpr int kAsksEvery = 10;
constexpr double kNearlyAll = 0.9;

/// The samples that were sampled and scored.
std::vector<const Sample*> scored_samples(const std::vector<Group>& groups) {
  std::vector<const Sample*> samples;
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) {
      if (!sample.reward.is_null() && sample.status != Status::kFailed) samples.push_back(&sample);
    }
  }
  return samples;
}

/// The reward that all samples have; nothing when two differ, or one has none.
std::optional<double> common_reward(const std::vector<const Sample*>& samples,
                                    const std::string& reward_key) {
  std::optional<double> common;
  for (const Sample* sample : samples) {
    const Expected<double> reward = reward_number(sample->reward, reward_key);
    if (!reward || (common && *common != *reward)) return std::nullopt;
    common = *reward;
  }
  return common;
}

template <typename Holds>
bool nearly_all(const std::vector<const Sample*>& samples, const Holds& holds) {
  const auto count = std::ranges::count_if(samples, [&](const Sample* s) { return holds(*s); });
  return static_cast<double>(count) >= kNearlyAll * static_cast<double>(samples.size());
}

/// What the rule of these rewards looks for in a response, where that is a mark of the text.
std::string_view mark_of_rule(std::string_view type) {
  if (type == "deepscaler") return "</think>";
  if (type == "math" || type == "dapo_box" || type == "math_verify" || type.starts_with("boxed_"))
    return "\\boxed{";
  return {};
}

/// "<|im_end|>" of a response that ends in it, else nothing.
std::string_view end_mark(std::string_view response) {
  constexpr std::size_t kLongest = 32;
  if (!response.ends_with('>')) return {};
  const std::size_t begin = response.rfind('<');
  if (begin == std::string_view::npos || response.size() - begin > kLongest) return {};
  const std::string_view mark = response.substr(begin);
  return mark.find_first_of(" \t\n") == std::string_view::npos ? mark : std::string_view();
}

std::string cause_of_low_rewards(const std::vector<const Sample*>& samples,
                                 const config::RunConfig& config) {
  if (nearly_all(samples, [](const Sample& s) { return s.response_length() == 0; }))
    return "the responses are empty";
  if (nearly_all(samples, [](const Sample& s) { return s.status == Status::kTruncated; })) {
    return fmt::format(
        "nearly all responses were cut off before their end (--rollout-max-response-len {})",
        config.rollout_max_response_len.value_or(0));
  }
  const std::string_view mark = mark_of_rule(config.rm_type);
  if (!mark.empty() && nearly_all(samples, [mark](const Sample& s) {
        return s.response.find(mark) == std::string::npos;
      })) {
    return fmt::format(
        "nearly no response has \"{}\", which --rm-type {} looks for; say so in the "
        "prompts, or take another type",
        mark, config.rm_type);
  }
  // Rules leave such marks out by themselves (docs/rewards.md).
  const std::string_view end = end_mark(samples.front()->response);
  const bool shows_marks =
      !config.custom_rm_path.peek().empty() && !config.rollout_skip_special_tokens.peek();
  if (shows_marks && !end.empty() &&
      nearly_all(samples, [end](const Sample& s) { return s.response.ends_with(end); })) {
    return fmt::format(
        "sample.response ends in \"{}\", which the function of --custom-rm-path may not expect: "
        "--rollout-skip-special-tokens leaves it out; or the task is too hard for the model",
        end);
  }
  return "the task is too hard for the model, or the reward does not understand its answers; look "
         "at some (slime report, slime score)";
}

std::string cause_of_equal_rewards(double reward, const std::vector<const Sample*>& samples,
                                   const config::RunConfig& config) {
  if (reward <= 0) return cause_of_low_rewards(samples, config);
  if (reward == 1) return "the task is too easy for the model, or the reward accepts everything";
  return "the reward says the same of every response";
}

/// Each group's rewards are equal, though groups differ.
bool are_equal_in_groups(const std::vector<Group>& groups, const std::string& reward_key) {
  return std::ranges::all_of(groups, [&](const Group& group) {
    std::vector<const Sample*> samples;
    for (const Sample& sample : group.samples) samples.push_back(&sample);
    return common_reward(samples, reward_key).has_value();
  });
}

int64_t num_trained_tokens(const std::vector<Group>& groups) {
  int64_t count = 0;
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) {
      if (!sample.remove_sample) count += sample.effective_response_length();
    }
  }
  return count;
}

std::string cause_of_no_tokens(const std::vector<Group>& groups) {
  const auto all_samples = [&](const auto& is_so) {
    return std::ranges::all_of(
        groups, [&](const Group& group) { return std::ranges::all_of(group.samples, is_so); });
  };
  if (all_samples([](const Sample& sample) { return sample.response_length() == 0; }))
    return "all responses are empty";
  if (all_samples([](const Sample& sample) { return sample.remove_sample; }))
    return "every sample was removed from training (remove_sample)";
  return "loss masks leave out every token of the responses";
}

/// Whether updates were made, each with a gradient of zero.
bool has_zero_gradients(const train::TrainReport& report) {
  bool has_norm = false;
  for (const train::StepReport& update : report.steps) {
    const auto norm = update.metrics.find("train/grad_norm");
    if (norm == update.metrics.end()) continue;
    if (norm->second != 0 || !update.skipped.empty()) return false;
    has_norm = true;
  }
  return has_norm;
}

}  // namespace

std::optional<std::string> LearningSignal::lack_of(const std::vector<Group>& groups,
                                                   const train::TrainReport* report) const {
  if (groups.empty()) return std::nullopt;
  if (report != nullptr && num_trained_tokens(groups) == 0)
    return "no token was trained: " + cause_of_no_tokens(groups);
  const bool counts_rewards = config_.has_advantages() && !config_.use_opd;
  const std::vector<const Sample*> samples = scored_samples(groups);
  if (counts_rewards && samples.size() > 1) {
    if (const std::optional<double> reward = common_reward(samples, config_.reward_key)) {
      return fmt::format("all {} rewards are {}: {}", samples.size(), *reward,
                         cause_of_equal_rewards(*reward, samples, config_));
    }
  }
  if (report == nullptr || !has_zero_gradients(*report)) return std::nullopt;
  if (counts_rewards && are_equal_in_groups(groups, config_.reward_key)) {
    return "the gradients are 0: the rewards of each prompt's responses are equal, so that all "
           "advantages are 0 (--dynamic-sampling-filter-path leaves such prompts out)";
  }
  return "the gradients are 0: the loss does not depend on the weights; advantages of 0, ratios "
         "that "
         "are all clipped, and weights that are all frozen do that";
}

std::optional<std::string> LearningSignal::line_of(int64_t step, const std::vector<Group>& groups,
                                                   const train::TrainReport* report) {
  std::optional<std::string> lack = lack_of(groups, report);
  if (!lack) {
    num_in_a_row_ = 0;
    return std::nullopt;
  }
  ++num_in_a_row_;
  std::string line = fmt::format("step {}: {}", step, *lack);
  const int since = num_in_a_row_ - kAsksAfter;
  if (since >= 0 && since % kAsksEvery == 0) {
    line +=
        fmt::format(". {} steps in a row have taught the model nothing: does this run make sense?",
                    num_in_a_row_);
  }
  return line;
}

}  // namespace slime::report
