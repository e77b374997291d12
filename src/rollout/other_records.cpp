#include "rollout/other_records.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <set>
#include <string_view>

namespace slime::rollout {
namespace {

/// The flags that say what is recorded of each token, where the sample was made with others.
std::set<std::string_view> differing_flags(const Sample& sample, const ResponseRules& rules) {
  std::set<std::string_view> flags;
  if (sample.response_length() == 0) return flags;
  if (sample.top_p_offsets.empty() == rules.keeps_top_p_ids) flags.insert("--rollout-top-p");
  if (sample.top_p_log_probs.empty() == rules.keeps_top_p_log_probs ||
      (sample.topk() == 0) != (rules.topk_log_probs == 0))
    flags.insert("--use-score-centering");
  else if (sample.topk() != rules.topk_log_probs)
    flags.insert("--score-centering-top-k");
  if (sample.routed_experts.empty() == rules.keeps_routed_experts)
    flags.insert("--use-rollout-routing-replay");
  return flags;
}

}  // namespace

bool has_other_records(const Sample& sample, const ResponseRules& rules) {
  return !differing_flags(sample, rules).empty() ||
         static_cast<int64_t>(sample.log_probs.size()) != sample.response_length();
}

std::string other_records_note(std::span<const Group* const> waiting, const ResponseRules& rules) {
  int64_t num_groups = 0, num_tokens = 0;
  std::set<std::string_view> flags;
  for (const Group* group : waiting) {
    int64_t tokens = 0;
    for (const Sample& sample : group->samples) {
      const std::set<std::string_view> differing = differing_flags(sample, rules);
      if (!differing.empty()) tokens += sample.response_length();
      flags.insert(differing.begin(), differing.end());
    }
    num_groups += tokens > 0 ? 1 : 0;
    num_tokens += tokens;
  }
  if (num_groups == 0) return "";
  return fmt::format(
      "{}: changed since the checkpoint, and with it what is recorded of each token; {} waiting "
      "group{} begin anew, {} sampled tokens are discarded",
      fmt::join(flags, ", "), num_groups, num_groups == 1 ? "" : "s", num_tokens);
}

}  // namespace slime::rollout
