#include "buffer/ledger_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "buffer/ledger_file.h"

namespace slime::buffer {
namespace {

/// One pass over the lines of a file that was scanned before.
class Audit {
 public:
  Audit(const LedgerScan& scan, std::optional<int64_t> checkpoint)
      : checkpoint_(checkpoint), cursor_(segments_that_count(scan, scan.file_bytes)) {
    audit_.num_records = scan.num_records;
    audit_.num_rollbacks = static_cast<int64_t>(scan.rollbacks.size());
    for (const LedgerScan::RollbackLine& line : scan.rollbacks) targets_.insert(line.to);
    if (scan.has_line_after_damage) {
      for (const LedgerLine& line : scan.damaged)
        problem(line, "damaged: its checksum or its form is wrong");
    } else {
      audit_.torn_bytes = scan.file_bytes - scan.whole_bytes;
      audit_.torn_begin = scan.whole_bytes;
    }
    if (checkpoint && *checkpoint > scan.whole_bytes && !scan.has_line_after_damage) {
      problem(
          fmt::format("the newest checkpoint was written at byte {}, but only {} bytes are "
                      "whole",
                      *checkpoint, scan.whole_bytes));
    }
  }

  void see(const LedgerLine& line) {
    targets_.erase(line.begin);
    if (!line.entry) return;
    if (const auto* rollback = std::get_if<Rollback>(&*line.entry)) {
      // Lines before it are seen, so what it leads to was erased if a line begins there.
      if (targets_.contains(rollback->position) || rollback->position > line.begin)
        problem(line, fmt::format("rolls back to byte {}, where no line begins before it",
                                  rollback->position));
      return;
    }
    if (!cursor_.counts(line.begin)) {
      ++audit_.num_rolled_back;
      return;
    }
    ++audit_.num_behind;
    if (const auto* record = std::get_if<LedgerRecord>(&*line.entry)) {
      see(line, *record);
    } else if (const auto* sums = std::get_if<LedgerSums>(&*line.entry)) {
      see(line, *sums);
    } else {
      see(line, std::get<LedgerTotals>(*line.entry));
    }
  }

  LedgerAudit finish() {
    audit_.prompts = state_.summary();
    audit_.tokens = state_.tokens();
    return std::move(audit_);
  }

 private:
  void problem(std::string what) {
    if (audit_.problems.size() < LedgerAudit::kMostProblems)
      audit_.problems.push_back(std::move(what));
    ++audit_.num_problems;
  }
  void problem(const LedgerLine& line, std::string_view what) {
    problem(fmt::format("line {} (byte {}): {}", line.number, line.begin, what));
  }

  void see(const LedgerLine& line, const LedgerRecord& record) {
    if (const std::string violation = state_.violation(record); !violation.empty())
      problem(line, violation);
    state_.add(record);
  }

  /// Where the checkpoint that they were collected at has its totals, these add up too.
  void see(const LedgerLine& line, const LedgerSums& sums) {
    state_ = LedgerState(sums);
    num_before_ = sums.num_before;
    audit_.collected_to = sums.position;
    if (sums.totals && sums.totals->step >= 0) see(line, *sums.totals);
  }

  void see(const LedgerLine& line, const LedgerTotals& totals) {
    const LedgerBalance now{line.end, totals, state_.summary(), state_.tokens(),
                            state_.open_discarded()};
    if (totals.step < 0) {
      // Taken over from another run, or from a time before totals were written.
      num_before_ = now.prompts.dispatched - totals.next_ordinal;
    }
    ++audit_.num_checkpoints;
    const std::string where = totals.step < 0
                                  ? "the beginning"
                                  : fmt::format("the checkpoint after step {}", totals.step);
    if (now.accounted_tokens() != totals.generated) {
      problem(line, fmt::format("at {} {} tokens were generated, {} are accounted for ({:+})",
                                where, totals.generated, now.accounted_tokens(),
                                now.accounted_tokens() - totals.generated));
    }
    if (now.prompts.dispatched != totals.next_ordinal + num_before_) {
      problem(line, fmt::format("at {} {} prompts were given out, {} are recorded ({:+})", where,
                                totals.next_ordinal + num_before_, now.prompts.dispatched,
                                now.prompts.dispatched - totals.next_ordinal - num_before_));
    }
    if (now.prompts.in_flight != totals.open_prompts) {
      problem(line, fmt::format("{} holds {} open prompts, {} have no outcome yet ({:+})", where,
                                totals.open_prompts, now.prompts.in_flight,
                                now.prompts.in_flight - totals.open_prompts));
    }
    if (now.open_discarded != totals.discarded) {
      problem(line, fmt::format("{} has {} tokens discarded for open prompts, {} are recorded "
                                "({:+})",
                                where, totals.discarded, now.open_discarded,
                                now.open_discarded - totals.discarded));
    }
    if (checkpoint_ && has_found_) return;
    has_found_ = checkpoint_ == line.end;
    audit_.checkpoint = now;
    audit_.num_behind = 0;
  }

  const std::optional<int64_t> checkpoint_;
  SegmentCursor cursor_;
  LedgerAudit audit_;
  LedgerState state_;
  std::set<int64_t> targets_;  // of rollbacks: those at which no line has begun so far
  int64_t num_before_ = 0;     // prompts recorded beyond those of ordinals [0, next)
  bool has_found_ = false;     // the totals of `checkpoint_`
};

}  // namespace

LedgerAudit audit_ledger(const std::filesystem::path& path, std::optional<int64_t> checkpoint) {
  const LedgerScan scan = scan_ledger(path);
  Audit audit(scan, checkpoint);
  LedgerReader reader(path);
  while (const std::optional<LedgerLine> line = reader.next()) audit.see(*line);
  return audit.finish();
}

std::vector<LedgerStep> path_of(const std::filesystem::path& path, int64_t ordinal) {
  const LedgerScan scan = scan_ledger(path);
  SegmentCursor cursor(segments_that_count(scan, scan.file_bytes));
  std::vector<LedgerStep> steps;
  LedgerReader reader(path);
  while (const std::optional<LedgerLine> line = reader.next()) {
    const bool counts = cursor.counts(line->begin);
    if (!line->entry) continue;
    const auto* record = std::get_if<LedgerRecord>(&*line->entry);
    if (record != nullptr && record->ordinal == ordinal)
      steps.push_back({line->number, line->begin, *record, counts});
  }
  return steps;
}

}  // namespace slime::buffer
