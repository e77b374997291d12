#include "simulate/invariant_checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "buffer/ledger_audit.h"
#include "buffer/ledger_file.h"
#include "core/error.h"
#include "core/version_runs.h"
#include "rollout/session.h"

namespace slime::simulate {

using buffer::Outcome;

namespace {

template <typename... Values>
[[noreturn]] void wrong(fmt::format_string<Values...> text, Values&&... values) {
  throw BugError(fmt::format(text, std::forward<Values>(values)...));
}

/// The latest that counts, of each prompt.
std::map<int64_t, Outcome> outcomes_in(const std::filesystem::path& ledger) {
  const buffer::LedgerScan scan = buffer::scan_ledger(ledger);
  buffer::SegmentCursor counting(buffer::segments_that_count(scan, scan.whole_bytes));
  std::map<int64_t, Outcome> outcomes;
  buffer::LedgerReader reader(ledger);
  while (const std::optional<buffer::LedgerLine> line = reader.next()) {
    const auto* record = line->entry ? std::get_if<buffer::LedgerRecord>(&*line->entry) : nullptr;
    if (counting.counts(line->begin) && record != nullptr)
      outcomes[record->ordinal] = record->outcome;
  }
  return outcomes;
}

}  // namespace

int64_t num_tokens(const std::vector<Group>& groups) {
  int64_t sum = 0;
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) sum += sample.response_length();
  }
  return sum;
}

void InvariantChecker::begin(Course course, int64_t num_tokens) {
  course_ = std::move(course);
  turn_of_.clear();
  num_turns_ = last_turn_ = 0;
  tokens_before_ = num_tokens;
  tokens_trained_ = tokens_dropped_ = tokens_discarded_ = lag_sum_ = largest_lag_ = 0;
}

void InvariantChecker::given_out(const std::vector<Group>& groups) {
  for (const Group& group : groups) {
    const auto known = course_.outcomes.emplace(group.ordinal, Outcome::kDispatched).first;
    if (is_final(known->second))
      wrong("prompt {} is given out after its end as {}", group.ordinal, to_string(known->second));
    turn_of_[group.ordinal] = ++num_turns_;
  }
}

void InvariantChecker::end(int64_t ordinal, Outcome outcome) {
  const auto known = course_.outcomes.find(ordinal);
  if (known == course_.outcomes.end()) wrong("prompt {} ends and was never given out", ordinal);
  if (is_final(known->second))
    wrong("prompt {} ends as {} and as {}", ordinal, to_string(known->second), to_string(outcome));
  known->second = outcome;
}

void InvariantChecker::dropped(const Group& group, const std::string& reason) {
  end(group.ordinal, reason == "failed" ? Outcome::kFailed : Outcome::kFiltered);
  tokens_dropped_ += num_tokens({group});
}

void InvariantChecker::check_tokens(const Sample& sample, WeightVersion version) {
  const auto length = static_cast<std::size_t>(sample.response_length());
  if (sample.log_probs.size() != length ||
      slime::num_tokens(sample.versions) != sample.response_length())
    wrong("sample {}: {} tokens, {} log-probs, versions of {}", sample.ordinal, length,
          sample.log_probs.size(), slime::num_tokens(sample.versions));
  std::size_t position = 0;
  const uint64_t key = rollout::draw_key(kTrainingSeed, sample.ordinal);
  for (const VersionRun& run : sample.versions) {
    for (int64_t i = 0; i < run.num_tokens; ++i, ++position) {
      if (sample.tokens[position] != token_at(key, static_cast<int64_t>(position)))
        wrong("sample {}: token {} is not the one that belongs there", sample.ordinal, position);
      if (sample.log_probs[position] != log_prob_of(run.version))
        wrong("sample {}: token {} is labelled with version {}, and was sampled by {}",
              sample.ordinal, position, run.version, -1 - sample.log_probs[position]);
    }
    if (run.version > version)
      wrong("sample {}: version {} before it is published", sample.ordinal, run.version);
    const int64_t lag = version - run.version;
    lag_sum_ += lag * run.num_tokens;
    largest_lag_ = std::max(largest_lag_, lag);
  }
}

void InvariantChecker::collected(int64_t step, const std::vector<Group>& groups,
                                 WeightVersion version, int64_t discarded) {
  tokens_discarded_ += discarded;
  tokens_trained_ += num_tokens(groups);
  largest_lag_ = 0;
  int64_t last_turn = last_turn_;
  for (const Group& group : groups) {
    const int64_t turn = turn_of_.at(group.ordinal);
    const bool keeps_order = scenario_.order == rollout::ConsumptionOrder::kDispatch;
    if (scenario_.is_async && keeps_order && turn < last_turn_)
      wrong("step {}: group {} was begun before one of an earlier step", step, group.ordinal);
    last_turn = std::max(last_turn, turn);
    for (const Sample& sample : group.samples) {
      if (sample.status != Status::kCompleted && sample.status != Status::kTruncated)
        wrong("step {}: sample {} is {}", step, sample.ordinal, to_string(sample.status));
      if (sample.reward.is_null()) wrong("step {}: sample {} has no reward", step, sample.ordinal);
      check_tokens(sample, version);
    }
  }
  last_turn_ = last_turn;
  const bool is_bound = scenario_.is_async ? scenario_.policy != rollout::StalePolicy::kCorrect
                                           : !scenario_.keeps_partial;
  const int64_t bound = scenario_.is_async ? scenario_.max_staleness : 0;
  if (is_bound && largest_lag_ > bound)
    wrong("step {}: a token is {} updates old, the bound is {}", step, largest_lag_, bound);
}

void InvariantChecker::trained(int64_t step, const std::vector<buffer::LedgerRecord>& outcomes) {
  std::vector<int64_t>& ordinals = course_.trained[step];
  if (!ordinals.empty()) wrong("step {} is trained twice", step);
  for (const buffer::LedgerRecord& record : outcomes) {
    end(record.ordinal, record.outcome);
    ordinals.push_back(record.ordinal);
  }
}

void InvariantChecker::ended(const std::filesystem::path& ledger, const std::vector<Group>& waiting,
                             int64_t num_sampled) {
  std::set<int64_t> pending;
  for (const Group& group : waiting) {
    if (!pending.insert(group.ordinal).second) wrong("group {} waits twice", group.ordinal);
  }
  const buffer::LedgerAudit audit = buffer::audit_ledger(ledger);
  if (!audit.problems.empty()) wrong("the ledger: {}", audit.problems.front());
  const std::map<int64_t, buffer::Outcome> told = outcomes_in(ledger);
  if (told.size() != course_.outcomes.size())
    wrong("{} prompts were given out, the ledger has {}", course_.outcomes.size(), told.size());
  for (const auto& [ordinal, outcome] : course_.outcomes) {
    const auto record = told.find(ordinal);
    if (record == told.end()) wrong("prompt {} is not in the ledger", ordinal);
    const bool is_over = is_final(outcome);
    if (is_over && record->second != outcome)
      wrong("prompt {} ended as {}, the ledger says {}", ordinal, to_string(outcome),
            to_string(record->second));
    if (!is_over && is_final(record->second))
      wrong("prompt {} has not ended, the ledger says {}", ordinal, to_string(record->second));
    if (is_over == pending.contains(ordinal))
      wrong("prompt {} {}", ordinal, is_over ? "waits after its end" : "is lost");
  }
  const int64_t left = num_tokens(waiting);
  const int64_t generated = tokens_before_ + num_sampled;
  const int64_t known = tokens_trained_ + tokens_dropped_ + tokens_discarded_ + left;
  if (generated != known)
    wrong(
        "{} tokens before and {} sampled are not {} trained, {} dropped, {} discarded and {} "
        "pending",
        tokens_before_, num_sampled, tokens_trained_, tokens_dropped_, tokens_discarded_, left);
}

}  // namespace slime::simulate
