#include "train/on_policy.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace slime::train {
namespace {

WeightVersion trained_version(const TrainBatch& batch) {
  if (batch.version) return *batch.version;
  WeightVersion newest = std::numeric_limits<WeightVersion>::min();
  for (const TrainSample& sample : batch.samples)
    for (const VersionRun& run : sample.versions) newest = std::max(newest, run.version);
  return newest;
}

/// Calls fn(t) for the trained tokens of the version; all of a sample whose versions are not known.
template <typename Fn>
void for_each_token_of(const TrainSample& sample, WeightVersion version, const Fn& fn) {
  const std::vector<VersionRun> all{{version, sample.response_length()}};
  int64_t t = 0;
  for (const VersionRun& run : sample.versions.empty() ? all : sample.versions) {
    for (const int64_t end = t + run.num_tokens; t < end; ++t) {
      if (run.version == version && sample.loss_mask[static_cast<std::size_t>(t)] != 0) fn(t);
    }
  }
}

}  // namespace

bool is_on_policy(const TrainBatch& batch) {
  const WeightVersion version = trained_version(batch);
  return std::ranges::all_of(batch.samples, [&](const TrainSample& sample) {
    int64_t own = 0;
    for_each_token_of(sample, version, [&](int64_t /*t*/) { ++own; });
    return own == std::ranges::count(sample.loss_mask, uint8_t{1}) &&
           sample.rollout_log_probs.size() == sample.loss_mask.size();
  });
}

void check_log_probs(const TrainBatch& batch, const MicroBatch& micro_batch,
                     const TokenColumn& engine, const Tensor& logprob_T) {
  const WeightVersion version = trained_version(batch);
  const Tensor seen = logprob_T.to(at::kDouble).contiguous();
  const auto* trainer = seen.const_data_ptr<double>();
  int64_t first = 0, different = 0, compared = 0;
  double largest = 0;
  std::string example;
  for (const int64_t i : micro_batch.samples) {
    const TrainSample& sample = batch.samples[i];
    const Tensor own =
        engine.of(i).defined() ? engine.of(i).to(at::kDouble).contiguous() : Tensor();
    for_each_token_of(sample, version, [&](int64_t t) {
      if (!own.defined())
        throw ConfigError(
            fmt::format("--true-on-policy: sample {} has no log-probs of the engine; a function "
                        "that makes samples should keep them (docs/plugins.md)",
                        sample.ordinal));
      ++compared;
      const double of_trainer = trainer[first + t], of_engine = own.const_data_ptr<double>()[t];
      if (of_trainer == of_engine || std::isnan(of_trainer)) return;  // the loss tells of NaNs
      largest = std::max(largest, std::abs(of_trainer - of_engine));
      if (different++ == 0)
        example = fmt::format(
            "token {} of the response of sample {} has {:.9g} by the trainer and "
            "{:.9g} by the engine",
            t, sample.ordinal, of_trainer, of_engine);
    });
    first += sample.response_length();
  }
  if (different > 0)
    throw ConfigError(fmt::format(
        "--true-on-policy: {} of {} log-probs differ, by {:.3g} at most; {}. Leave "
        "--true-on-policy out to train with the difference, and please report this model",
        different, compared, largest, example));
}

}  // namespace slime::train
