#include "report/step_details.h"

#include <algorithm>
#include <cmath>

#include "text/unicode/unicode.h"

namespace slime::report {
namespace {

constexpr std::size_t kNumRanges = 30;

std::optional<double> reward_of(const Sample& sample, const std::string& reward_key) {
  const json::value* reward = &sample.reward;
  if (const json::object* record = reward->if_object()) reward = record->if_contains(reward_key);
  if (reward == nullptr || !reward->is_number()) return std::nullopt;
  return reward->to_number<double>();
}

/// Where both are known, of trained tokens.
void add_differences(const Sample& sample, const std::vector<float>& trained,
                     std::vector<double>& out) {
  const std::size_t count = std::min(sample.log_probs.size(), trained.size());
  for (std::size_t t = 0; t < count; ++t) {
    if (!sample.loss_mask.empty() && sample.loss_mask[t] == 0) continue;
    out.push_back(static_cast<double>(trained[t]) - static_cast<double>(sample.log_probs[t]));
  }
}

}  // namespace

std::string shortened(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return text::to_valid_utf8(text);
  const auto is_inside = [&](std::size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
  };
  std::size_t head = limit / 2, tail = text.size() - limit / 2;
  while (head > 0 && is_inside(head)) --head;
  while (tail < text.size() && is_inside(tail)) ++tail;
  return text::to_valid_utf8(text.substr(0, head)) + " [...] " +
         text::to_valid_utf8(text.substr(tail));
}

std::optional<Distribution> distribution_of(std::string name, std::span<const double> values) {
  Distribution made{.name = std::move(name)};
  std::size_t count = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    made.min = count == 0 ? value : std::min(made.min, value);
    made.max = count == 0 ? value : std::max(made.max, value);
    made.sum += value;
    made.sum_squares += value * value;
    ++count;
  }
  if (count == 0) return std::nullopt;
  const double width = (made.max - made.min) / static_cast<double>(kNumRanges);
  if (!(width > 0) || !std::isfinite(width)) {
    made.limits = {made.max};
    made.counts = {static_cast<double>(count)};
    return made;
  }
  for (std::size_t i = 1; i < kNumRanges; ++i)
    made.limits.push_back(made.min + width * static_cast<double>(i));
  made.limits.push_back(made.max);
  made.counts.resize(kNumRanges);
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    const auto range = std::ranges::lower_bound(made.limits, value) - made.limits.begin();
    ++made.counts[std::min(static_cast<std::size_t>(range), kNumRanges - 1)];
  }
  return made;
}

StepDetails details_of(std::span<const Group> groups, const train::TrainReport* report,
                       const std::string& reward_key, int64_t num_samples) {
  struct Ranked {
    const Sample* sample;
    std::optional<double> reward, advantage;
  };
  std::vector<Ranked> ranked;
  std::vector<double> rewards, lengths, differences, advantages;
  std::size_t place = 0;  // in the batch: the trainer keeps the order of the groups
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) {
      Ranked one{&sample, reward_of(sample, reward_key), {}};
      if (report != nullptr && place < report->log_probs.size())
        add_differences(sample, report->log_probs[place], differences);
      if (report != nullptr && place < report->advantages.size() &&
          std::isfinite(report->advantages[place]))
        one.advantage = report->advantages[place];
      if (one.reward) rewards.push_back(*one.reward);
      if (one.advantage) advantages.push_back(*one.advantage);
      lengths.push_back(static_cast<double>(sample.effective_response_length()));
      ranked.push_back(one);
      ++place;
    }
  }
  StepDetails details;
  for (auto& [name, values] :
       {std::pair{"reward", &rewards}, std::pair{"response_len", &lengths},
        std::pair{"log_prob_difference", &differences}, std::pair{"advantage", &advantages}}) {
    if (auto made = distribution_of(std::string("rollout/distribution/") + name, *values))
      details.distributions.push_back(std::move(*made));
  }
  std::ranges::stable_sort(ranked, {}, [](const Ranked& one) { return one.reward.value_or(0); });
  const auto count = std::min(ranked.size(), static_cast<std::size_t>(num_samples));
  for (std::size_t i = 0; i < count; ++i) {
    const Ranked& one = ranked[count == 1 ? 0 : i * (ranked.size() - 1) / (count - 1)];
    details.samples.push_back({.ordinal = one.sample->ordinal,
                               .reward = one.reward,
                               .advantage = one.advantage,
                               .response_length = one.sample->response_length(),
                               .status = to_string(one.sample->status),
                               .prompt = shortened(one.sample->prompt, kShownText),
                               .response = shortened(one.sample->response, kShownText)});
  }
  return details;
}

}  // namespace slime::report
