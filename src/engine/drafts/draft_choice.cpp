#include "engine/drafts/draft_choice.h"

#include <algorithm>

#include "core/error.h"

namespace slime::engine {
namespace {

struct DraftCandidate {
  double chance = 0;
  int64_t sequence = 0;
};

}  // namespace

std::vector<int64_t> choose_drafts(std::span<const std::vector<Draft>> drafts, int64_t num_rows,
                                   int64_t most_rows, const StepCosts& costs) {
  check(num_rows > 0, "a step that drafts are chosen for has rows");
  std::vector<DraftCandidate> candidates;
  for (int64_t i = 0; i < std::ssize(drafts); ++i) {
    double chance = 1;
    for (const Draft& draft : drafts[i]) {
      chance = std::min(chance, draft.chance);  // so that a draft never comes before an earlier one
      if (chance <= 0) break;
      candidates.push_back({.chance = chance, .sequence = i});
    }
  }
  std::ranges::stable_sort(candidates, std::ranges::greater{}, &DraftCandidate::chance);
  const int64_t most = std::clamp<int64_t>(most_rows - num_rows, 0, std::ssize(candidates));
  auto tokens = static_cast<double>(num_rows);
  double best_rate = tokens / costs.seconds(num_rows);
  int64_t best = 0;
  for (int64_t count = 1; count <= most; ++count) {
    tokens += candidates[count - 1].chance;
    const double rate = tokens / costs.seconds(num_rows + count);
    if (rate > best_rate) {
      best_rate = rate;
      best = count;
    }
  }
  std::vector<int64_t> chosen(drafts.size());
  for (int64_t i = 0; i < best; ++i) ++chosen[candidates[i].sequence];
  return chosen;
}

}  // namespace slime::engine
