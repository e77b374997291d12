#include "report/training_outcomes.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/sampled_tokens.h"

namespace slime::report {
namespace {

/// Why a sample changed no weight; empty: it did.
std::vector<std::string> reasons_by_sample(std::size_t num_samples,
                                           const train::TrainReport& report) {
  std::vector<std::string> reasons(num_samples, "beyond the last full training step");
  for (std::size_t i = 0; i < report.samples_of_steps.size(); ++i) {
    const std::string reason = i < report.steps.size() ? report.steps[i].skipped : report.stopped;
    for (const int64_t sample : report.samples_of_steps[i])
      reasons.at(static_cast<std::size_t>(sample)) = reason;
  }
  return reasons;
}

}  // namespace

std::vector<buffer::LedgerRecord> training_outcomes(const std::vector<Group>& groups,
                                                    const train::TrainReport& report,
                                                    int64_t step) {
  std::size_t num_samples = 0;
  for (const Group& group : groups) num_samples += group.samples.size();
  const std::vector<std::string> reasons = reasons_by_sample(num_samples, report);
  std::vector<buffer::LedgerRecord> outcomes;
  auto reason = reasons.begin();
  for (const Group& group : groups) {
    std::size_t num_skipped = 0;
    std::string first;
    for (std::size_t i = 0; i < group.samples.size(); ++i, ++reason) {
      if (reason->empty()) continue;
      if (num_skipped++ == 0) first = *reason;
    }
    buffer::LedgerRecord record{.ordinal = group.ordinal,
                                .outcome = buffer::Outcome::kTrained,
                                .step = step,
                                .tokens = num_sampled_tokens(group)};
    if (num_skipped == group.samples.size()) {
      record.outcome = buffer::Outcome::kSkipped;
      record.reason = first;
    } else if (num_skipped > 0) {
      record.reason =
          fmt::format("{} of {} samples skipped: {}", num_skipped, group.samples.size(), first);
    }
    outcomes.push_back(std::move(record));
  }
  return outcomes;
}

}  // namespace slime::report
