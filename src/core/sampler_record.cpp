#include "core/sampler_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace slime {
namespace {

// As the original compares them (reference slime_0_4.md 6.3): |a - b| <= absolute + relative |b|.
constexpr double kRelative = 1e-4;
constexpr double kAbsoluteMass = 1e-6;
constexpr double kAbsoluteLogProb = 1e-5;

bool is_close(double a, double b, double absolute) {
  return std::abs(a - b) <= absolute + kRelative * std::abs(b);
}

/// Of the ids of one token.
class Row {
 public:
  Row(std::span<const TokenId> ids, std::span<const float> log_probs)
      : ids_(ids), log_probs_(log_probs) {}

  double mass() const {
    double mass = 0;
    for (const float log_prob : log_probs_) mass += std::exp(static_cast<double>(log_prob));
    return mass;
  }

  /// `sorted`: memory of the caller's.
  std::string problem(std::vector<TokenId>& sorted) const {
    sorted.assign(ids_.begin(), ids_.end());
    std::ranges::sort(sorted);
    if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
      return fmt::format("has id {} twice", *twice);
    if (!sorted.empty() && sorted.front() < 0) return fmt::format("has id {}", sorted.front());
    const auto odd =
        std::ranges::find_if_not(log_probs_, [](float x) { return std::isfinite(x) && x <= 0; });
    return odd == log_probs_.end() ? "" : fmt::format("has log-prob {}", *odd);
  }

  /// Its log-prob must be `log_prob`.
  std::string problem_of_drawn(TokenId id, float log_prob) const {
    const auto found = std::ranges::find(ids_, id);
    if (found == ids_.end()) return fmt::format("lacks id {}, which was drawn", id);
    const float own = log_probs_[static_cast<std::size_t>(found - ids_.begin())];
    if (is_close(own, log_prob, kAbsoluteLogProb)) return "";
    return fmt::format("gives the id that was drawn log-prob {}, and it was drawn with {}", own,
                       log_prob);
  }

 private:
  std::span<const TokenId> ids_;
  std::span<const float> log_probs_;
};

bool is_trained(const SamplerRecord& record, std::size_t token) {
  return record.loss_mask.empty() || record.loss_mask[token] != 0;
}

std::string at_token(std::size_t token, const std::string& problem) {
  return fmt::format("has a wrong record of what its response token {} was drawn from: it {}",
                     token, problem);
}

}  // namespace

std::string problem_of_support(const SamplerRecord& record, std::span<const int64_t> offsets) {
  const std::size_t length = record.tokens.size();
  if (length == 0) return "";
  if (offsets.size() != length + 1)
    return "has no record of the ids that its tokens were drawn from";
  if (record.id_log_probs.size() != record.ids.size())
    return fmt::format("has {} log-probs of the {} ids that its tokens were drawn from",
                       record.id_log_probs.size(), record.ids.size());
  if (record.log_probs.size() != length) return "has no log-probs of its tokens";
  std::vector<TokenId> sorted;
  for (std::size_t t = 0; t < length; ++t) {
    if (!is_trained(record, t)) continue;
    const auto begin = static_cast<std::size_t>(offsets[t]);
    const auto count = static_cast<std::size_t>(offsets[t + 1] - offsets[t]);
    const Row row(record.ids.subspan(begin, count), record.id_log_probs.subspan(begin, count));
    if (const std::string problem = row.problem(sorted); !problem.empty())
      return at_token(t, problem);
    if (!is_close(row.mass(), 1, kAbsoluteMass))
      return at_token(t, fmt::format("adds up to {}, not to 1", row.mass()));
    const std::string problem = row.problem_of_drawn(record.tokens[t], record.log_probs[t]);
    if (!problem.empty()) return at_token(t, problem);
  }
  return "";
}

std::string problem_of_head(const SamplerRecord& record, int64_t width) {
  constexpr double kLargestMass = 1.0001;
  const std::size_t length = record.tokens.size(), count = length * static_cast<std::size_t>(width);
  if (record.ids.size() != count || record.id_log_probs.size() != count) {
    return fmt::format(
        "has {} of the sampler's likeliest ids and {} log-probs; {} tokens have {} each",
        record.ids.size(), record.id_log_probs.size(), length, width);
  }
  std::vector<TokenId> sorted;
  for (std::size_t t = 0; t < length; ++t) {
    if (!is_trained(record, t)) continue;
    const std::size_t begin = t * static_cast<std::size_t>(width);
    const Row row(record.ids.subspan(begin, static_cast<std::size_t>(width)),
                  record.id_log_probs.subspan(begin, static_cast<std::size_t>(width)));
    std::string problem = row.problem(sorted);
    if (problem.empty() && row.mass() > kLargestMass)
      problem = fmt::format("has a mass of {}", row.mass());
    if (!problem.empty()) return at_token(t, problem);
  }
  return "";
}

}  // namespace slime
