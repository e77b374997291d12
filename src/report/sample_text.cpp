#include "report/sample_text.h"

#include <fmt/format.h>

#include "core/reward_number.h"
#include "core/safe_text.h"

namespace slime::report {
namespace {

/// Indented, with a line break at its end.
std::string shown(std::string_view text) {
  constexpr std::string_view kIndent = "    ";
  std::string out(kIndent);
  for (const char c : text) {
    out += c;
    if (c == '\n') out += kIndent;
  }
  return out + "\n";
}

Expected<double> number_of(const json::value& reward, const std::string& reward_key) {
  const bool has_score = reward.is_object() && reward.get_object().contains("score");
  return reward_number(reward, reward_key.empty() && has_score ? std::string("score") : reward_key);
}

/// "reward 1", "reward 0.5 of {...}", "no reward".
std::string reward_text(const json::value& reward, const std::string& reward_key) {
  if (reward.is_null()) return "no reward";
  const Expected<double> number = number_of(reward, reward_key);
  if (!number) return "reward " + json_text(reward);
  if (!reward.is_object()) return fmt::format("reward {:.6g}", *number);
  return fmt::format("reward {:.6g} of {}", *number, json_text(reward));
}

std::string heading(const Group& group, const std::string& reward_key) {
  double sum = 0;
  int64_t count = 0;
  for (const Sample& sample : group.samples) {
    const Expected<double> number = number_of(sample.reward, reward_key);
    if (!number) continue;
    sum += *number;
    ++count;
  }
  std::string text = fmt::format("prompt {}: {} sample{}", group.ordinal, group.samples.size(),
                                 group.samples.size() == 1 ? "" : "s");
  if (count > 0) text += fmt::format(", mean reward {:.6g}", sum / static_cast<double>(count));
  const json::value& label = group.samples.front().label;
  if (!label.is_null()) text += ", label " + json_text(label);
  return text;
}

}  // namespace

std::string plain_text(const Group& group, const std::string& reward_key) {
  if (group.samples.empty()) return "";
  std::string text = heading(group, reward_key) + "\n" + shown(group.samples.front().prompt) + "\n";
  for (const Sample& sample : group.samples) {
    text += fmt::format("sample {}: {}, {}, {} tokens\n", sample.ordinal,
                        reward_text(sample.reward, reward_key), to_string(sample.status),
                        sample.response_length());
    if (!sample.failure.empty()) text += shown("why: " + sample.failure);
    text += shown(sample.response) + "\n";
  }
  return safe_text(text);
}

}  // namespace slime::report
