#include "report/alarms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

namespace slime::report {
namespace {

/// Rows of a metric that are numbers.
MetricSeries numbers_of(const RunMetrics& metrics, std::initializer_list<const char*> names) {
  MetricSeries out;
  for (const char* name : names) {
    const auto found = metrics.series.find(name);
    if (found == metrics.series.end()) continue;
    for (std::size_t i = 0; i < found->second.steps.size(); ++i) {
      if (!std::isfinite(found->second.values[i])) continue;
      out.steps.push_back(found->second.steps[i]);
      out.values.push_back(found->second.values[i]);
    }
    break;
  }
  return out;
}

double mean_of(const std::vector<double>& values, std::size_t begin, std::size_t end) {
  double sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += values[i];
  return sum / static_cast<double>(end - begin);
}

/// Mean of the last `window` rows up to `step`, and of the first `window`; nothing while they overlap.
struct Compared {
  double base, now;
};
std::optional<Compared> compare(const MetricSeries& series, int64_t step, std::size_t window) {
  const auto end =
      static_cast<std::size_t>(std::ranges::upper_bound(series.steps, step) - series.steps.begin());
  if (end < 2 * window) return std::nullopt;
  return Compared{mean_of(series.values, 0, window), mean_of(series.values, end - window, end)};
}

/// Median of the last `window` rows, for each row from which on there are so many.
MetricSeries running_medians(const MetricSeries& series, std::size_t window) {
  MetricSeries out;
  for (std::size_t i = window; i <= series.steps.size(); ++i) {
    const auto end = series.values.begin() + static_cast<std::ptrdiff_t>(i);
    std::vector<double> values(end - static_cast<std::ptrdiff_t>(window), end);
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(window / 2);
    std::ranges::nth_element(values, middle);
    out.steps.push_back(series.steps[i - 1]);
    out.values.push_back(*middle);
  }
  return out;
}

/// The last stretch of rows for which a rule holds, row by row.
struct Stretch {
  std::size_t begin, end;  // [begin, end)
};
template <typename Holds>
std::optional<Stretch> last_stretch(std::size_t count, const Holds& holds) {
  std::size_t end = count;
  while (end > 0 && !holds(end - 1)) --end;
  if (end == 0) return std::nullopt;
  std::size_t begin = end - 1;
  while (begin > 0 && holds(begin - 1)) --begin;
  return Stretch{begin, end};
}

Alarm alarm_over(const MetricSeries& series, const Stretch& stretch) {
  Alarm alarm;
  alarm.first_step = series.steps[stretch.begin];
  alarm.last_step = series.steps[stretch.end - 1];
  alarm.is_now = stretch.end == series.steps.size();
  alarm.look["step"] = alarm.last_step;
  return alarm;
}

/// What moved beyond its bounds at a step, in words; empty: nothing did.
struct Suspicion {
  std::string words;
  std::string sort;  // of the samples that show it
};

class RewardHacking {
 public:
  RewardHacking(const RunMetrics& metrics, const AlarmRules& rules)
      : rules_(rules),
        reward_(numbers_of(metrics, {"rollout/raw_reward", "rollout/reward/mean"})),
        length_(numbers_of(metrics, {"rollout/response_len/mean", "rollout/response_lengths"})),
        entropy_(numbers_of(metrics, {"train/entropy_loss", "train/entropy"})),
        repetition_(numbers_of(metrics, {"rollout/repetition_frac"})) {
    if (reward_.values.size() < 2 * kWindow) return;
    const double mean = mean_of(reward_.values, 0, kWindow);
    double squares = 0;
    for (std::size_t i = 0; i < kWindow; ++i)
      squares += (reward_.values[i] - mean) * (reward_.values[i] - mean);
    deviation_ = std::sqrt(squares / (kWindow - 1));
    double low = reward_.values.front(), high = low;
    for (const double value : reward_.values) {
      low = std::min(low, value);
      high = std::max(high, value);
      ranges_.push_back(high - low);
    }
  }

  std::optional<Alarm> find() const {
    if (ranges_.empty()) return std::nullopt;
    const auto holds = [this](std::size_t row) { return !suspicion_at(row).words.empty(); };
    const auto stretch = last_stretch(reward_.steps.size(), holds);
    if (!stretch) return std::nullopt;
    Alarm alarm = alarm_over(reward_, *stretch);
    const Suspicion suspicion = suspicion_at(stretch->end - 1);
    const Compared reward = *compare(reward_, alarm.last_step, kWindow);
    alarm.kind = "reward_hacking";
    alarm.title = "Reward hacking?";
    alarm.what = fmt::format("The reward rose from {:.3g} to {:.3g} while {}.", reward.base,
                             reward.now, suspicion.words);
    alarm.advice =
        "Read the samples with the highest rewards: do they solve the task, or please the reward?";
    alarm.look["sort"] = suspicion.sort;
    return alarm;
  }

 private:
  Suspicion suspicion_at(std::size_t row) const {
    const int64_t step = reward_.steps[row];
    const auto reward = compare(reward_, step, kWindow);
    if (!reward) return {};
    const double rise = reward->now - reward->base;
    if (rise <= rules_.reward_deviations * deviation_ ||
        rise <= rules_.reward_range_share * ranges_[row] || rise <= 0)
      return {};
    Suspicion found;
    const auto add = [&found](std::string words, const char* sort) {
      if (found.sort.empty()) found.sort = sort;
      found.words += (found.words.empty() ? "" : ", ") + std::move(words);
    };
    if (const auto length = compare(length_, step, kWindow)) {
      const bool is_longer = length->now > rules_.length_factor * length->base;
      if (is_longer || length->now * rules_.length_factor < length->base) {
        add(fmt::format("responses went from {:.0f} to {:.0f} tokens", length->base, length->now),
            is_longer ? "length-" : "length+");
      }
    }
    if (const auto entropy = compare(entropy_, step, kWindow)) {
      if (entropy->base > 0 && (entropy->now > rules_.entropy_factor * entropy->base ||
                                entropy->now * rules_.entropy_factor < entropy->base))
        add(fmt::format("the entropy went from {:.3g} to {:.3g} nats", entropy->base, entropy->now),
            "reward-");
    }
    if (const auto repetition = compare(repetition_, step, kWindow)) {
      if (repetition->now > repetition->base + rules_.repetition_rise)
        add(fmt::format("samples that repeat themselves went from {:.0f} % to {:.0f} %",
                        100 * repetition->base, 100 * repetition->now),
            "length-");
    }
    return found;
  }

  const AlarmRules& rules_;
  const MetricSeries reward_, length_, entropy_, repetition_;
  double deviation_ = 0;        // of the reward's base
  std::vector<double> ranges_;  // highest minus lowest reward up to each row
};

/// Per step the sum of the metrics that begin with `prefix`, of those that `counts` takes by the rest of
/// their names. A metric that a step lacks counts 0.
template <typename Counts>
MetricSeries summed(const RunMetrics& metrics, std::string_view prefix,
                    std::initializer_list<const char*> present, const Counts& counts) {
  std::map<int64_t, double> sums;
  for (const int64_t step : numbers_of(metrics, present).steps) sums[step] = 0;
  for (auto found = metrics.series.lower_bound(std::string(prefix));
       found != metrics.series.end() && found->first.starts_with(prefix); ++found) {
    if (!counts(std::string_view(found->first).substr(prefix.size()))) continue;
    for (std::size_t i = 0; i < found->second.steps.size(); ++i)
      if (std::isfinite(found->second.values[i]))
        sums[found->second.steps[i]] += found->second.values[i];
  }
  MetricSeries out;
  for (const auto& [step, sum] : sums) {
    out.steps.push_back(step);
    out.values.push_back(sum);
  }
  return out;
}

/// "4", or "8_up".
int64_t lag_of(std::string_view name) {
  int64_t lag = -1;
  std::from_chars(name.data(), name.data() + name.size(), lag);
  return lag;
}

std::optional<Alarm> find_stale_tokens(const RunMetrics& metrics, const AlarmRules& rules) {
  const MetricSeries shares = running_medians(
      summed(metrics, "rollout/weight_version/lag_share/", {"rollout/weight_version/lag_mean"},
             [&](std::string_view name) { return lag_of(name) >= rules.stale_lag; }),
      rules.short_window);
  const auto stretch = last_stretch(
      shares.steps.size(), [&](std::size_t row) { return shares.values[row] > rules.stale_share; });
  if (!stretch) return std::nullopt;
  Alarm alarm = alarm_over(shares, *stretch);
  alarm.kind = "stale_tokens";
  alarm.title = "Stale tokens";
  alarm.what = fmt::format(
      "{:.0f} % of the trained tokens came from weights that were {} updates old or older (median "
      "of {} steps).",
      100 * shares.values[stretch->end - 1], rules.stale_lag, rules.short_window);
  alarm.advice =
      "Look at the samples with the oldest weights. Fewer groups in flight, or shorter responses, "
      "make them younger (docs/async.md).";
  alarm.look["sort"] = "version+";
  return alarm;
}

std::optional<Alarm> find_dead_groups(const RunMetrics& metrics, double groups_per_step,
                                      const AlarmRules& rules) {
  const MetricSeries counts =
      running_medians(summed(metrics, "rollout/zero_std/count_", {"rollout/raw_reward"},
                             [](std::string_view) { return true; }),
                      rules.short_window);
  const auto share_at = [&](std::size_t row) {
    return std::min(1.0, counts.values[row] / groups_per_step);
  };
  const auto stretch = last_stretch(
      counts.steps.size(), [&](std::size_t row) { return share_at(row) > rules.dead_share; });
  if (!stretch) return std::nullopt;
  Alarm alarm = alarm_over(counts, *stretch);
  alarm.kind = "dead_groups";
  alarm.title = "Dead groups";
  alarm.what = fmt::format(
      "In {:.0f} % of the groups all rewards are equal (median of {} steps): they have no "
      "advantage, "
      "and teach nothing.",
      100 * share_at(stretch->end - 1), rules.short_window);
  alarm.advice =
      "Look at such groups: too hard, too easy, or a reward that does not see the difference? "
      "--dynamic-sampling-filter-path leaves them out.";
  alarm.look["dead"] = 1;
  return alarm;
}

std::optional<Alarm> find_zero_gradients(const RunMetrics& metrics, const AlarmRules& rules) {
  const MetricSeries norms = numbers_of(metrics, {"train/grad_norm"});
  std::vector<std::size_t> in_a_row(norms.values.size());
  for (std::size_t i = 0; i < norms.values.size(); ++i)
    in_a_row[i] = norms.values[i] == 0 ? (i > 0 ? in_a_row[i - 1] : 0) + 1 : 0;
  const auto stretch = last_stretch(
      in_a_row.size(), [&](std::size_t row) { return in_a_row[row] >= rules.zero_gradients; });
  if (!stretch) return std::nullopt;
  Alarm alarm = alarm_over(norms, *stretch);
  alarm.first_step = norms.steps[stretch->begin + 1 - rules.zero_gradients];
  alarm.kind = "zero_gradients";
  alarm.title = "Gradients of zero";
  alarm.what =
      fmt::format("{} updates in a row had a gradient of zero: the weights stay as they are.",
                  in_a_row[stretch->end - 1]);
  alarm.advice =
      "Look at the rewards: where those of each prompt are equal all advantages are zero. Ratios "
      "that "
      "are all clipped, masks that are all zero and frozen weights do the same.";
  return alarm;
}

std::optional<Alarm> find_difference(const RunMetrics& metrics, const AlarmRules& rules) {
  const MetricSeries rows = numbers_of(metrics, {"train/train_rollout_logprob_abs_diff"});
  const MetricSeries medians = running_medians(rows, rules.short_window);
  const bool has_base = rows.values.size() >= 2 * kWindow;
  const double base = has_base ? mean_of(rows.values, 0, kWindow) : 0;
  const auto holds = [&](std::size_t row) {
    const double middle = medians.values[row];
    if (middle > rules.difference) return true;
    const bool is_behind_base = row + rules.short_window >= 2 * kWindow;
    return has_base && is_behind_base && middle > rules.small_difference &&
           middle > rules.difference_factor * base;
  };
  const auto stretch = last_stretch(medians.steps.size(), holds);
  if (!stretch) return std::nullopt;
  Alarm alarm = alarm_over(medians, *stretch);
  alarm.kind = "log_prob_difference";
  alarm.title = "Engine and trainer differ";
  alarm.what = fmt::format(
      "The log-probs of engine and trainer differ by {:.3g} nats (median of {} steps{}).",
      medians.values[stretch->end - 1], rules.short_window,
      has_base ? fmt::format("; {:.3g} at the beginning", base) : "");
  alarm.advice =
      "Look at the samples with the largest difference, token by token: rare tokens alone, or from "
      "one place on? --use-tis corrects for it; docs/exact.md says where it comes from.";
  alarm.look["sort"] = "difference-";
  return alarm;
}

}  // namespace

std::optional<double> groups_per_step(const json::object& flags) {
  const json::value* groups = flags.if_contains("--rollout-batch-size");
  if (groups == nullptr || !groups->is_number()) return std::nullopt;
  return groups->to_number<double>();
}

std::vector<Alarm> find_alarms(const RunMetrics& metrics, std::optional<double> groups,
                               const AlarmRules& rules) {
  std::vector<Alarm> alarms;
  const auto add = [&alarms](std::optional<Alarm> alarm) {
    if (alarm) alarms.push_back(std::move(*alarm));
  };
  add(RewardHacking(metrics, rules).find());
  add(find_zero_gradients(metrics, rules));
  if (groups && *groups > 0) add(find_dead_groups(metrics, *groups, rules));
  add(find_difference(metrics, rules));
  add(find_stale_tokens(metrics, rules));
  std::ranges::stable_sort(alarms, std::ranges::greater{}, &Alarm::is_now);
  return alarms;
}

json::array to_json(const std::vector<Alarm>& alarms) {
  json::array out;
  for (const Alarm& alarm : alarms) {
    out.push_back(json::object{{"kind", alarm.kind},
                               {"title", alarm.title},
                               {"what", alarm.what},
                               {"advice", alarm.advice},
                               {"first_step", alarm.first_step},
                               {"last_step", alarm.last_step},
                               {"is_now", alarm.is_now},
                               {"look", alarm.look}});
  }
  return out;
}

}  // namespace slime::report
