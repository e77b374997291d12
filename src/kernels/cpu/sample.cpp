#include "kernels/cpu/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/sample_statistics.h"

namespace slime::kernels {
namespace {

using Scored = std::pair<float, int32_t>;  // (logit, id)

using Kept = std::vector<std::pair<double, int32_t>>;  // (share of the whole, id), best first

/// Heap order: the larger logit first, of equal ones the smaller id.
bool is_worse(const Scored& a, const Scored& b) {
  return a.first < b.first || (a.first == b.first && a.second > b.second);
}

/// Hands out a row's tokens from best to worst without sorting all of them.
class BestFirst {
 public:
  /// Only logits >= threshold are considered.
  BestFirst(std::span<const float> logits_V, float threshold) {
    collect_at_least(logits_V, threshold, heap_);
    std::make_heap(heap_.begin(), heap_.end(), is_worse);
  }
  bool is_empty() const { return heap_.empty(); }
  Scored pop() {
    std::pop_heap(heap_.begin(), heap_.end(), is_worse);
    const Scored best = heap_.back();
    heap_.pop_back();
    return best;
  }

 private:
  std::vector<Scored> heap_;
};

/// A logit that at least `count` tokens reach: the count-th largest block maximum.
float reached_by(const RowStatistics& row, int64_t count) {
  if (count > static_cast<int64_t>(row.block_max.size()))
    return -std::numeric_limits<float>::infinity();
  std::vector<float> maxima = row.block_max;
  std::nth_element(maxima.begin(), maxima.begin() + (count - 1), maxima.end(), std::greater<>());
  return maxima[count - 1];
}

class Row {
 public:
  Row(std::span<const float> logits_V, double temperature)
      : logits_V_(logits_V), temperature_(temperature) {
    measure_row(logits_V, static_cast<float>(1.0 / temperature), statistics_);
    log_sum_ = std::log(statistics_.total);
  }

  /// relative to the largest: (logit - max) / temperature.
  double shifted(float logit) const {
    return (static_cast<double>(logit) - static_cast<double>(statistics_.max)) / temperature_;
  }
  double log_prob(float logit) const { return shifted(logit) - log_sum_; }
  double log_prob_of(int32_t id) const { return log_prob(logits_V_[id]); }
  const RowStatistics& statistics() const { return statistics_; }

  std::vector<Scored> best(int64_t count) const {
    count = std::min<int64_t>(count, static_cast<int64_t>(logits_V_.size()));
    std::vector<Scored> top;
    if (count <= 0) return top;
    BestFirst order(logits_V_, reached_by(statistics_, count));
    while (static_cast<int64_t>(top.size()) < count && !order.is_empty()) {
      const Scored next = order.pop();
      top.emplace_back(static_cast<float>(log_prob(next.first)), next.second);
    }
    return top;
  }

  std::vector<Scored> of(std::span<const int32_t> ids) const {
    std::vector<Scored> scored;
    for (const int32_t id : ids)
      scored.emplace_back(static_cast<float>(log_prob(logits_V_[id])), id);
    return scored;
  }

  /// Inverse of the cumulative distribution over all ids: whole blocks first, then inside one.
  int32_t draw(double uniform) const {
    double left = uniform * statistics_.total;
    std::size_t block = 0;
    for (; block + 1 < statistics_.block_sum.size() && left >= statistics_.block_sum[block];
         ++block) {
      left -= statistics_.block_sum[block];
    }
    const auto begin = static_cast<int64_t>(block) * kRowBlock;
    const auto end = std::min<int64_t>(begin + kRowBlock, static_cast<int64_t>(logits_V_.size()));
    int64_t last = -1;  // the last token that can be sampled, should rounding leave a rest
    for (int64_t v = begin; v < end; ++v) {
      const double weight = std::exp(shifted(logits_V_[v]));
      if (weight == 0) continue;
      last = v;
      left -= weight;
      if (left < 0) break;
    }
    return last >= 0 ? static_cast<int32_t>(last) : statistics_.argmax;
  }

  /// The survivors of the truncation, best first, with their shares of the whole.
  Kept kept(const SampleOptions& options) const {
    const auto vocab = static_cast<int64_t>(logits_V_.size());
    const int64_t top_k = options.top_k < 0 ? vocab : std::min(options.top_k, vocab);
    // Lower bounds of the smallest kept logit: tokens less likely than (1 - top_p) / V hold less
    // than 1 - top_p together.
    float threshold =
        top_k < vocab ? reached_by(statistics_, top_k) : -std::numeric_limits<float>::infinity();
    const double least_share =
        std::max(options.top_p < 1.0 ? (1.0 - options.top_p) / static_cast<double>(vocab) : 0.0,
                 options.min_p / statistics_.total);
    if (least_share > 0) {
      const double margin =
          (std::log(least_share) + log_sum_) * temperature_ - 1e-3 * std::max(1.0, temperature_);
      threshold = std::max(threshold, statistics_.max + static_cast<float>(margin));
    }
    threshold = std::min(threshold, statistics_.max);
    BestFirst order(logits_V_, threshold);
    Kept kept;
    double before = 0;
    while (!order.is_empty() && static_cast<int64_t>(kept.size()) < top_k &&
           before <= options.top_p) {
      const Scored next = order.pop();
      const double relative = std::exp(shifted(next.first));
      if (relative < options.min_p || (relative == 0 && !kept.empty())) break;
      kept.emplace_back(relative / statistics_.total, next.second);
      before += relative / statistics_.total;
    }
    return kept;
  }

 private:
  std::span<const float> logits_V_;
  double temperature_;
  RowStatistics statistics_;
  double log_sum_ = 0;
};

double total_of(const Kept& kept) {
  double total = 0;
  for (const auto& [share, id] : kept) total += share;
  return total;
}

int32_t draw_among(const Kept& kept, double uniform) {
  double left = uniform * total_of(kept);
  for (const auto& [share, id] : kept) {
    left -= share;
    if (left < 0) return id;
  }
  return kept.back().second;
}

/// `kept`: empty where nothing is truncated.
SampledToken report(const Row& row, float logit, int32_t id, const Kept& kept,
                    const SampleOptions& options) {
  SampledToken token;
  token.id = id;
  const bool lists = options.keeps_ids && !kept.empty();
  // Among the kept alone, rounding must not make a log-prob larger than 0.
  const double log_kept = lists ? std::log(total_of(kept)) : 0.0;
  const auto among_kept = [&](double log_prob) {
    if (lists && kept.size() == 1) return 0.0F;
    return static_cast<float>(lists ? std::min(log_prob - log_kept, 0.0) : log_prob);
  };
  token.log_prob = among_kept(row.log_prob(logit));
  if (lists) {
    for (const auto& [share, kept_id] : kept) token.kept_ids.push_back(kept_id);
  }
  if (lists && options.keeps_log_probs) {
    for (const int32_t kept_id : token.kept_ids)
      token.kept_log_probs.push_back(among_kept(row.log_prob_of(kept_id)));
  }
  token.top = row.best(options.num_top);
  token.asked = row.of(options.asked_ids);
  return token;
}

}  // namespace

bool is_truncated(const SampleOptions& options, int64_t vocab_size) {
  return !options.greedy && (options.top_p < 1.0 || options.min_p > 0.0 ||
                             (options.top_k >= 0 && options.top_k < vocab_size));
}

SampledToken sample_row(std::span<const float> logits_V, const SampleOptions& options) {
  const Row row(logits_V, options.temperature);
  if (std::isnan(row.statistics().total)) {
    SampledToken token;
    token.log_prob = std::numeric_limits<float>::quiet_NaN();
    return token;
  }
  Kept kept;
  if (is_truncated(options, static_cast<int64_t>(logits_V.size()))) kept = row.kept(options);
  const int32_t id = options.greedy ? row.statistics().argmax
                     : kept.empty() ? row.draw(options.uniform)
                                    : draw_among(kept, options.uniform);
  return report(row, logits_V[id], id, kept, options);
}

SampledToken report_row(std::span<const float> logits_V, int32_t id, const SampleOptions& options) {
  const Row row(logits_V, options.temperature);
  Kept kept;
  if (is_truncated(options, static_cast<int64_t>(logits_V.size()))) kept = row.kept(options);
  const auto is_it = [&](const auto& entry) { return entry.second == id; };
  if (!kept.empty() && std::none_of(kept.begin(), kept.end(), is_it))
    kept.emplace_back(std::exp(row.log_prob(logits_V[id])), id);
  return report(row, logits_V[id], id, kept, options);
}

SampledToken score_row(std::span<const float> logits_V, int32_t id, double temperature,
                       int64_t num_top, std::span<const int32_t> asked_ids) {
  const Row row(logits_V, temperature);
  SampledToken token;
  token.id = id;
  token.log_prob = static_cast<float>(row.log_prob(logits_V[id]));
  token.top = row.best(num_top);
  token.asked = row.of(asked_ids);
  return token;
}

}  // namespace slime::kernels
