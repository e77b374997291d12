#include "train/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>

#include "core/error.h"
#include "train/karmarkar_karp.h"

namespace slime::train {
namespace {

int64_t sum_of(const Indices& bin, std::span<const int64_t> lengths) {
  int64_t sum = 0;
  for (const int64_t i : bin) sum += lengths[i];
  return sum;
}

double flops_of(const Indices& bin, std::span<const int64_t> lengths, const FlopsModel& model) {
  std::vector<int64_t> bin_lengths;
  for (const int64_t i : bin) bin_lengths.push_back(lengths[i]);
  return forward_flops(model, bin_lengths);
}

std::vector<Indices> static_bins(int64_t count, int64_t size) {
  std::vector<Indices> bins;
  for (int64_t i = 0; i < count; ++i) {
    if (i % size == 0) bins.emplace_back();
    bins.back().push_back(i);
  }
  return bins;
}

std::vector<Indices> singletons(int64_t count) { return static_bins(count, 1); }

/// As many bins as the tokens need, of equal FLOPs rather than of bounded size.
std::vector<Indices> flops_bins(std::span<const int64_t> lengths, int64_t capacity,
                                const FlopsModel& model) {
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const int64_t num_bins = std::max<int64_t>(1, (total + capacity - 1) / capacity);
  if (num_bins >= static_cast<int64_t>(lengths.size()))
    return singletons(static_cast<int64_t>(lengths.size()));
  std::vector<double> work;
  for (const int64_t length : lengths) work.push_back(forward_flops(model, std::span(&length, 1)));
  return partition_evenly(work, num_bins, /*equal_size=*/false);
}

/// What the number of a step's micro-batches is a multiple of, for a message.
std::string divisor_of(const BatchingConfig& config) {
  const std::string ranks = fmt::format("the {} data-parallel ranks", config.dp);
  if (config.micro_batch_group == 1) return ranks;
  return fmt::format("{} x groups of {} (pipeline stages with virtual stages)", ranks,
                     config.micro_batch_group);
}

/// The micro-batches of one step, as many for each rank.
std::vector<Indices> bins_of_step(std::span<const int64_t> lengths, const BatchingConfig& config,
                                  const FlopsModel& model) {
  const int64_t capacity = config.max_tokens_per_gpu;
  std::vector<Indices> bins =
      !config.use_dynamic_batch_size
          ? static_bins(static_cast<int64_t>(lengths.size()), config.micro_batch_size)
      : config.balance_by_flops ? flops_bins(lengths, capacity, model)
                                : first_fit(lengths, capacity);
  const auto num_bins = static_cast<int64_t>(bins.size());
  const int64_t align = config.dp * config.micro_batch_group;
  const int64_t target = std::max(align, (num_bins + align - 1) / align * align);
  if (num_bins == target) return bins;
  if (!config.use_dynamic_batch_size) {
    throw ConfigError(
        fmt::format("micro-batch-size: a step of {} samples gives {} micro-batches of {}, which is "
                    "not a multiple of {}; change global-batch-size or use "
                    "--use-dynamic-batch-size",
                    lengths.size(), num_bins, config.micro_batch_size, divisor_of(config)));
  }
  bins = expand_bins(std::move(bins), lengths, target);
  if (static_cast<int64_t>(bins.size()) != target) {
    throw ConfigError(fmt::format(
        "global-batch-size: a training step of {} samples cannot be split into {} micro-batches, "
        "the smallest multiple of {}; raise global-batch-size",
        lengths.size(), target, divisor_of(config)));
  }
  return bins;
}

/// Which bins each rank takes.
std::vector<Indices> bins_of_ranks(const std::vector<Indices>& bins,
                                   std::span<const int64_t> lengths, const BatchingConfig& config,
                                   const FlopsModel& model) {
  if (config.balance_data || config.balance_by_flops) {
    std::vector<double> work;
    for (const Indices& bin : bins) work.push_back(flops_of(bin, lengths, model));
    return partition_evenly(work, config.dp, /*equal_size=*/true);
  }
  std::vector<Indices> ranks(config.dp);
  for (std::size_t i = 0; i < bins.size(); ++i)
    ranks[i % config.dp].push_back(static_cast<int64_t>(i));
  return ranks;
}

}  // namespace

std::vector<Indices> split_into_steps(std::span<const int64_t> rollout_ids,
                                      int64_t global_batch_size) {
  std::unordered_map<int64_t, std::size_t> position;
  std::vector<Indices> executions;
  for (std::size_t i = 0; i < rollout_ids.size(); ++i) {
    const auto [found, is_new] = position.try_emplace(rollout_ids[i], executions.size());
    if (is_new) executions.emplace_back();
    executions[found->second].push_back(static_cast<int64_t>(i));
  }
  const auto count = static_cast<int64_t>(executions.size());
  const int64_t num_steps = count / global_batch_size;
  if (num_steps == 0) {
    throw ConfigError(fmt::format(
        "global-batch-size: a training step needs {} rollout executions, the batch has {}",
        global_batch_size, count));
  }
  std::vector<Indices> steps(num_steps);
  for (int64_t e = 0; e < num_steps * global_batch_size; ++e) {
    Indices& step = steps[e / global_batch_size];
    step.insert(step.end(), executions[e].begin(), executions[e].end());
  }
  return steps;
}

std::vector<Indices> first_fit(std::span<const int64_t> lengths, int64_t capacity) {
  std::vector<Indices> bins;
  std::vector<int64_t> fill;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const auto fits = std::find_if(fill.begin(), fill.end(),
                                   [&](int64_t f) { return f + lengths[i] <= capacity; });
    const auto bin = static_cast<std::size_t>(fits - fill.begin());
    if (fits == fill.end()) {
      bins.emplace_back();
      fill.push_back(0);
    }
    bins[bin].push_back(static_cast<int64_t>(i));
    fill[bin] += lengths[i];
  }
  return bins;
}

std::vector<Indices> expand_bins(std::vector<Indices> bins, std::span<const int64_t> lengths,
                                 int64_t target) {
  while (static_cast<int64_t>(bins.size()) < target) {
    int64_t fullest = -1, most = -1;
    for (std::size_t b = 0; b < bins.size(); ++b) {
      const int64_t sum = sum_of(bins[b], lengths);
      if (bins[b].size() > 1 && sum >= most) {
        most = sum;
        fullest = static_cast<int64_t>(b);
      }
    }
    if (fullest < 0) break;  // singletons all
    Indices items = bins[fullest];
    std::stable_sort(items.begin(), items.end(),
                     [&](int64_t a, int64_t b) { return lengths[a] > lengths[b]; });
    Indices halves[2];
    int64_t sums[2] = {0, 0};
    for (const int64_t item : items) {
      const int half = sums[1] < sums[0] ? 1 : 0;
      halves[half].push_back(item);
      sums[half] += lengths[item];
    }
    bins[fullest] = std::move(halves[0]);
    bins.push_back(std::move(halves[1]));
  }
  return bins;
}

Schedule make_schedule(std::span<const int64_t> total_lengths, std::span<const int64_t> rollout_ids,
                       const BatchingConfig& config, const FlopsModel& flops) {
  Schedule schedule;
  schedule.samples.resize(config.dp);
  schedule.micro_batches.resize(config.dp);
  for (const Indices& step : split_into_steps(rollout_ids, config.global_batch_size)) {
    if (static_cast<int64_t>(step.size()) < config.dp) {
      throw ConfigError(
          fmt::format("a training step of {} samples is less than one per data-parallel rank ({})",
                      step.size(), config.dp));
    }
    std::vector<int64_t> lengths;
    for (const int64_t i : step) lengths.push_back(total_lengths[i]);
    const std::vector<Indices> bins = bins_of_step(lengths, config, flops);
    const std::vector<Indices> ranks = bins_of_ranks(bins, lengths, config, flops);
    for (int64_t rank = 0; rank < config.dp; ++rank) {
      for (const int64_t b : ranks[rank]) {
        Indices micro_batch;
        for (const int64_t i : bins[b]) {
          micro_batch.push_back(static_cast<int64_t>(schedule.samples[rank].size()));
          schedule.samples[rank].push_back(step[i]);
        }
        schedule.micro_batches[rank].push_back(std::move(micro_batch));
      }
    }
    schedule.num_micro_batches.push_back(static_cast<int64_t>(bins.size()) / config.dp);
    schedule.global_batch_sizes.push_back(config.global_batch_size);
  }
  return schedule;
}

}  // namespace slime::train
