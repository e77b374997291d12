#include "buffer/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "buffer/ledger_record.h"
#include "core/error.h"

namespace slime::buffer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::filesystem::path fresh(const std::string& name) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / name;
  std::filesystem::remove(path);
  return path;
}

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

LedgerRecord trained(int64_t ordinal, int64_t step) {
  return {.ordinal = ordinal, .fate = Fate::kTrained, .step = step, .reason = ""};
}
LedgerRecord dispatched(int64_t ordinal) {
  return {.ordinal = ordinal, .fate = Fate::kDispatched, .step = -1, .reason = ""};
}

/// What reading a ledger file, without changing it, finds.
struct LedgerAudit {
  LedgerState state;
  LedgerSummary summary;
  int64_t num_records = 0;      // whole ones, rolled back ones and rollbacks included
  int64_t num_rolled_back = 0;  // records that do not count any more
  int64_t num_rollbacks = 0;    // restarts
  int64_t torn_bytes = 0;       // of an unfinished line at the end
  // Violations, in words: "prompt 17: trained at step 3 and again at step 5".
  std::vector<std::string> problems;
};

LedgerAudit audit_ledger(const std::filesystem::path& path) {
  const LedgerLines file = read_ledger_lines(path);
  LedgerAudit audit;
  audit.num_records = static_cast<int64_t>(file.lines.size());
  for (const LedgerLine& line : file.lines)
    audit.num_rollbacks += std::holds_alternative<Rollback>(line.content) ? 1 : 0;
  audit.torn_bytes = file.file_bytes - file.whole_bytes;
  if (file.has_line_after_damage) {
    audit.problems.push_back(
        fmt::format("byte {}: a damaged line, and whole ones after it", file.whole_bytes));
  }
  for (const LedgerRecord& record :
       effective_records(file.lines, std::numeric_limits<int64_t>::max(), &audit.num_rolled_back)) {
    const std::string problem = violation(audit.state, record);
    if (!problem.empty()) audit.problems.push_back(problem);
    audit.state[record.ordinal] = record;
  }
  audit.summary = summarize(audit.state);
  return audit;
}

TEST(Ledger, CountsWherePromptsAre) {
  const std::filesystem::path path = fresh("counts.ledger");
  Ledger ledger = Ledger::create(path);
  for (int64_t ordinal = 0; ordinal < 5; ++ordinal) ledger.append(dispatched(ordinal));
  ledger.append({.ordinal = 0, .fate = Fate::kPartial});
  ledger.append({.ordinal = 1, .fate = Fate::kScored});
  ledger.append(trained(1, 0));
  ledger.append({.ordinal = 2, .fate = Fate::kFiltered, .reason = "zero_std_1"});
  ledger.append(
      {.ordinal = 3, .fate = Fate::kFailed, .reason = "judge: \"timeout\"\nafter 3 attempts"});
  const LedgerSummary expected{
      .dispatched = 5, .in_flight = 2, .trained = 1, .filtered = 1, .failed = 1};
  EXPECT_EQ(ledger.summary(), expected);
  EXPECT_THAT(ledger.in_flight(), ElementsAre(0, 4));
  EXPECT_EQ(ledger.commit(), static_cast<int64_t>(std::filesystem::file_size(path)));

  const LedgerAudit audit = audit_ledger(path);
  EXPECT_EQ(audit.summary, expected);
  EXPECT_THAT(audit.problems, ElementsAre());
  EXPECT_EQ(audit.state.at(3).reason, "judge: \"timeout\"\nafter 3 attempts");
  EXPECT_EQ(audit.state.at(1).step, 0);
}

TEST(Ledger, RefusesASecondFateAndAPromptThatWasNotDispatched) {
  Ledger ledger = Ledger::create(fresh("refuses.ledger"));
  ledger.append(dispatched(7));
  ledger.append(trained(7, 3));
  EXPECT_THROW(ledger.append(trained(7, 4)), BugError);
  EXPECT_THROW(ledger.append(dispatched(7)), BugError);
  EXPECT_THROW(ledger.append({.ordinal = 8, .fate = Fate::kScored}), BugError);
  EXPECT_EQ(ledger.summary().trained, 1);
}

TEST(Ledger, DoesNotOverwriteAnotherRunsRecord) {
  const std::filesystem::path path = fresh("exists.ledger");
  Ledger::create(path).append(dispatched(0));
  EXPECT_THROW(Ledger::create(path), ConfigError);
}

TEST(Ledger, OpenedAtACheckpointRollsBackWhatFollowed) {
  const std::filesystem::path path = fresh("rollback.ledger");
  int64_t first_checkpoint = 0;
  int64_t second_checkpoint = 0;
  {
    Ledger ledger = Ledger::create(path);
    ledger.append(dispatched(0));
    ledger.append(trained(0, 0));
    first_checkpoint = ledger.commit();
    ledger.append(dispatched(1));
    ledger.append(trained(1, 1));
    second_checkpoint = ledger.commit();
    ledger.append(dispatched(2));
  }
  {
    Ledger ledger = Ledger::open_at(path, first_checkpoint);
    EXPECT_EQ(ledger.summary().dispatched, 1);
    ledger.append(dispatched(1));
    ledger.append(trained(1, 1));
    EXPECT_EQ(audit_ledger(path).num_rolled_back, 3);
  }
  // The other branch counts again when its checkpoint is chosen.
  EXPECT_EQ(Ledger::open_at(path, second_checkpoint).summary().trained, 2);
  const LedgerAudit audit = audit_ledger(path);
  EXPECT_THAT(audit.problems, ElementsAre());
  EXPECT_EQ(audit.num_rollbacks, 2);
  EXPECT_EQ(audit.num_rolled_back, 3);  // prompt 2 of the first branch, both records of the second
  EXPECT_EQ(audit.summary.trained, 2);
}

TEST(Ledger, AKillAtAnyByteLosesAtMostTheUnfinishedRecord) {
  const std::filesystem::path path = fresh("torn.ledger");
  std::vector<int64_t> ends{0};
  int64_t checkpoint = 0;
  {
    Ledger ledger = Ledger::create(path);
    ledger.append(dispatched(0));
    ends.push_back(ledger.commit());
    ledger.append(dispatched(1));
    ends.push_back(checkpoint = ledger.commit());
    ledger.append(trained(0, 0));
    ends.push_back(ledger.commit());
    ledger.append({.ordinal = 1, .fate = Fate::kFailed, .reason = "engine"});
    ends.push_back(ledger.commit());
  }
  const std::string whole = content(path);
  for (std::size_t bytes = static_cast<std::size_t>(checkpoint); bytes <= whole.size(); ++bytes) {
    write(path, std::string_view(whole).substr(0, bytes));
    const auto num_whole = std::count_if(ends.begin() + 1, ends.end(), [&](int64_t end) {
      return end <= static_cast<int64_t>(bytes);
    });
    EXPECT_EQ(audit_ledger(path).num_records, num_whole);
    Ledger ledger = Ledger::open_at(path, checkpoint);
    EXPECT_THAT(ledger.in_flight(), ElementsAre(0, 1));
    ledger.append(trained(0, 0));
    ledger.append(trained(1, 0));
    const LedgerAudit audit = audit_ledger(path);
    EXPECT_THAT(audit.problems, ElementsAre()) << "cut at byte " << bytes;
    EXPECT_EQ(audit.torn_bytes, 0);
    EXPECT_EQ(audit.summary.trained, 2);
  }
  write(path, std::string_view(whole).substr(0, static_cast<std::size_t>(checkpoint) - 1));
  EXPECT_THROW(Ledger::open_at(path, checkpoint), ConfigError);
}

TEST(Ledger, AFlippedBitInAnyByteBeforeTheCheckpointIsFound) {
  const std::filesystem::path path = fresh("flipped.ledger");
  {
    Ledger ledger = Ledger::create(path);
    ledger.append(dispatched(0));
    ledger.append(trained(0, 0));
  }
  const std::string whole = content(path);
  for (std::size_t byte = 0; byte < whole.size(); ++byte) {
    std::string damaged = whole;
    damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << byte % 8));
    write(path, damaged);
    EXPECT_THROW(Ledger::open_at(path, static_cast<int64_t>(whole.size())), ConfigError) << byte;
    EXPECT_GT(audit_ledger(path).torn_bytes, 0);
  }
}

TEST(Ledger, ASkippedPromptIsCountedAsSuchAndEndsThere) {
  const std::filesystem::path path = fresh("skipped.ledger");
  {
    Ledger ledger = Ledger::create(path);
    ledger.append(dispatched(0));
    ledger.append({.ordinal = 0, .fate = Fate::kSkipped, .step = 2, .reason = "the loss is nan"});
    EXPECT_THROW(ledger.append(trained(0, 2)), BugError);
    EXPECT_TRUE(ledger.in_flight().empty());
  }
  const LedgerAudit audit = audit_ledger(path);
  EXPECT_EQ(audit.summary, (LedgerSummary{.dispatched = 1, .skipped = 1}));
  EXPECT_EQ(audit.state.at(0).reason, "the loss is nan");
  EXPECT_EQ(audit.state.at(0).step, 2);
}

TEST(Ledger, TheAuditNamesWhatIsWrong) {
  const std::filesystem::path one = fresh("one.ledger");
  const std::filesystem::path two = fresh("two.ledger");
  {
    Ledger ledger = Ledger::create(one);
    ledger.append(dispatched(0));
    ledger.append(trained(0, 3));
    Ledger other = Ledger::create(two);
    other.append(dispatched(0));
    other.append(trained(0, 5));
  }
  const std::string second = content(two);
  write(one, content(one) + second.substr(second.find('\n') + 1));
  EXPECT_THAT(audit_ledger(one).problems,
              ElementsAre(HasSubstr("prompt 0: trained at step 5 after it was trained at step 3")));
  write(one, content(two) + "garbage\n" + content(two));
  EXPECT_THAT(audit_ledger(one).problems,
              ElementsAre(HasSubstr("a damaged line, and whole ones after it")));
  EXPECT_THROW(audit_ledger("/nowhere/x.ledger"), ConfigError);
}

}  // namespace
}  // namespace slime::buffer
