#pragma once

/// Step costs: how long steps take by the number of their rows, as measured (docs/decisions/0163-drafts.md, 4).
///
/// Rows are counted in buckets: up to 1, 2, 3, 4, 6, 8, 12, 16, 24, ... rows. A bucket's seconds are an exponential
/// mean of medians of five steps, so a single slow step says nothing; one step alone does not count as measured,
/// since the first of a kind is often slow. What no step measured for 1,024 steps is forgotten: contexts grow.
///
/// Between measured buckets rows are interpolated, beyond them they cost what the last ones did, each. Where one bucket
/// alone is measured, more rows look free, beyond twice as many in proportion, so that they are tried; and fewer rows
/// than any that were measured cost in proportion, so that an engine that has always drafted finds out what a step
/// without drafts takes.

#include <array>
#include <cstdint>

namespace slime::engine {

class StepCosts {
 public:
  /// Of a step of num_rows > 0 rows, all of them of sequences that generate.
  void observe(int64_t num_rows, double seconds);

  /// Of a step of num_rows > 0 rows. 1 while nothing is measured: only ratios count then.
  double seconds(int64_t num_rows) const;

 private:
  static constexpr int kBuckets = 48;
  static constexpr int64_t kMedianOf = 5;

  struct Bucket {
    double mean_rows = 0;
    double seconds = 0;
    int64_t num_steps = 0;
    int64_t last_step = 0;
    std::array<double, kMedianOf> latest = {};
  };

  static int bucket_of(int64_t num_rows);
  bool is_measured(int bucket) const;
  /// The first measured bucket from here on, -1 where there is none. `direction`: 1 or -1.
  int measured_from(int bucket, int direction) const;
  double slope(int fewer, int more) const;  // seconds a row, of measured buckets

  std::array<Bucket, kBuckets> buckets_;
  int64_t num_steps_ = 0;
};

}  // namespace slime::engine
