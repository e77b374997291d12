#include "engine/drafts/step_costs.h"

#include <algorithm>
#include <bit>

namespace slime::engine {
namespace {

constexpr double kNewest = 0.25;  // weight of a step in a bucket's means
constexpr int64_t kForgotten = 1024;
constexpr int64_t kMeasured = 2;

}  // namespace

int StepCosts::bucket_of(int64_t num_rows) {
  if (num_rows <= 1) return 0;
  // 2^power < num_rows <= 2^(power + 1)
  const auto power = static_cast<int>(std::bit_width(static_cast<uint64_t>(num_rows - 1))) - 1;
  const bool is_upper = 2 * num_rows > 3 * (int64_t{1} << power);
  return std::min(2 * power + (is_upper ? 2 : 1), kBuckets - 1);
}

void StepCosts::observe(int64_t num_rows, double seconds) {
  ++num_steps_;
  Bucket& bucket = buckets_[bucket_of(num_rows)];
  if (num_steps_ - bucket.last_step > kForgotten) bucket = {};
  bucket.last_step = num_steps_;
  bucket.latest[bucket.num_steps++ % kMedianOf] = seconds;
  const auto count = std::min(bucket.num_steps, kMedianOf);
  std::array<double, kMedianOf> sorted = bucket.latest;
  const auto middle = sorted.begin() + (count - 1) / 2;
  std::nth_element(sorted.begin(), middle, sorted.begin() + count);
  const double median = *middle;
  const double newest = bucket.num_steps <= kMedianOf ? 1 : kNewest;
  bucket.seconds += newest * (median - bucket.seconds);
  bucket.mean_rows +=
      (bucket.num_steps == 1 ? 1 : kNewest) * (static_cast<double>(num_rows) - bucket.mean_rows);
}

bool StepCosts::is_measured(int bucket) const {
  if (bucket < 0 || bucket >= kBuckets) return false;
  const Bucket& that = buckets_[bucket];
  return that.num_steps >= kMeasured && num_steps_ - that.last_step <= kForgotten;
}

int StepCosts::measured_from(int bucket, int direction) const {
  while (bucket >= 0 && bucket < kBuckets && !is_measured(bucket)) bucket += direction;
  return bucket < kBuckets ? bucket : -1;
}

double StepCosts::slope(int fewer, int more) const {
  return (buckets_[more].seconds - buckets_[fewer].seconds) /
         (buckets_[more].mean_rows - buckets_[fewer].mean_rows);
}

double StepCosts::seconds(int64_t num_rows) const {
  const auto rows = static_cast<double>(num_rows);
  const int at = bucket_of(num_rows);
  if (is_measured(at)) {
    const Bucket& here = buckets_[at];
    const int other = rows < here.mean_rows ? at - 1 : at + 1;
    if (rows == here.mean_rows || !is_measured(other)) return here.seconds;
    const Bucket& there = buckets_[other];
    const double part = (rows - here.mean_rows) / (there.mean_rows - here.mean_rows);
    return here.seconds + part * (there.seconds - here.seconds);
  }
  const int below = measured_from(at - 1, -1), above = measured_from(at + 1, 1);
  if (below < 0 && above < 0) return 1;
  if (below < 0) return buckets_[above].seconds * rows / buckets_[above].mean_rows;
  const Bucket& fewer = buckets_[below];
  if (above >= 0) return fewer.seconds + slope(below, above) * (rows - fewer.mean_rows);
  const int further = measured_from(below - 1, -1);
  if (further < 0) return fewer.seconds * std::max(1.0, rows / (2 * fewer.mean_rows));
  return fewer.seconds + std::max(0.0, slope(further, below)) * (rows - fewer.mean_rows);
}

}  // namespace slime::engine
