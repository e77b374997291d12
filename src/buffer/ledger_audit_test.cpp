#include "buffer/ledger_audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <fstream>
#include <functional>

#include "buffer/ledger.h"
#include "core/error.h"

namespace slime::buffer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::filesystem::path written(const std::vector<LedgerEntry>& entries) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "audit.ledger";
  std::ofstream file(path, std::ios::binary);
  for (const LedgerEntry& entry : entries) file << to_line(entry);
  return path;
}

LedgerRecord given_out(int64_t ordinal) { return {.ordinal = ordinal}; }
LedgerRecord end_of(int64_t ordinal, Outcome outcome, int64_t tokens, int64_t discarded = 0) {
  return {.ordinal = ordinal, .outcome = outcome, .tokens = tokens, .discarded = discarded};
}

LedgerRecord handed_back(int64_t ordinal, int64_t discarded) {
  return {.ordinal = ordinal, .outcome = Outcome::kPartial, .discarded = discarded};
}

/// Five prompts, one of each outcome and one under way; 100 tokens.
std::vector<LedgerEntry> sound() {
  return {given_out(0),
          given_out(1),
          given_out(2),
          given_out(3),
          given_out(4),
          handed_back(4, 4),
          end_of(0, Outcome::kTrained, 30, 5),
          end_of(1, Outcome::kSkipped, 20),
          end_of(2, Outcome::kFiltered, 10),
          end_of(3, Outcome::kFailed, 8, 2),
          LedgerTotals{.step = 7,
                       .next_ordinal = 5,
                       .open_prompts = 1,
                       .generated = 100,
                       .pending = 21,
                       .discarded = 4}};
}

constexpr std::size_t kTotals = 10;  // in sound()

std::vector<std::string> problems_of(const std::vector<LedgerEntry>& entries) {
  const LedgerAudit audit = audit_ledger(written(entries));
  EXPECT_EQ(audit.num_problems, static_cast<int64_t>(audit.problems.size()));
  return audit.problems;
}

TEST(LedgerAudit, ASoundLedgerAddsUp) {
  const LedgerAudit audit = audit_ledger(written(sound()));
  EXPECT_THAT(audit.problems, ElementsAre());
  ASSERT_TRUE(audit.checkpoint.has_value());
  EXPECT_EQ(audit.checkpoint->prompts, (LedgerSummary{.dispatched = 5,
                                                      .in_flight = 1,
                                                      .trained = 1,
                                                      .skipped = 1,
                                                      .filtered = 1,
                                                      .failed = 1}));
  EXPECT_EQ(audit.checkpoint->discarded_tokens(), 11);
  EXPECT_EQ(audit.checkpoint->accounted_tokens(), 100);
  EXPECT_EQ(audit.num_behind, 0);
}

TEST(LedgerAudit, EachWrongNumberIsFound) {
  const auto with = [](const std::function<void(LedgerTotals&)>& change) {
    std::vector<LedgerEntry> entries = sound();
    change(std::get<LedgerTotals>(entries[kTotals]));
    return problems_of(entries);
  };
  EXPECT_THAT(with([](LedgerTotals& totals) { ++totals.generated; }),
              ElementsAre(HasSubstr("101 tokens were generated, 100 are accounted for (-1)")));
  EXPECT_THAT(with([](LedgerTotals& totals) { ++totals.pending; }),
              ElementsAre(HasSubstr("100 tokens were generated, 101 are accounted for (+1)")));
  EXPECT_THAT(with([](LedgerTotals& totals) { --totals.discarded; }),
              ElementsAre(HasSubstr("(-1)"), HasSubstr("3 tokens discarded for open prompts, 4")));
  EXPECT_THAT(with([](LedgerTotals& totals) { ++totals.next_ordinal; }),
              ElementsAre(HasSubstr("6 prompts were given out, 5 are recorded (-1)")));
  EXPECT_THAT(with([](LedgerTotals& totals) { totals.open_prompts = 0; }),
              ElementsAre(HasSubstr("holds 0 open prompts, 1 have no outcome yet (+1)")));
}

TEST(LedgerAudit, ALostTokenOfAnyRecordIsFound) {
  for (std::size_t i = 6; i < kTotals; ++i) {
    std::vector<LedgerEntry> entries = sound();
    --*std::get<LedgerRecord>(entries[i]).tokens;
    EXPECT_THAT(problems_of(entries), ElementsAre(HasSubstr("99 are accounted for (-1)"))) << i;
  }
}

TEST(LedgerAudit, ALostRecordIsFound) {
  for (std::size_t i = 0; i < kTotals; ++i) {
    std::vector<LedgerEntry> entries = sound();
    entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_FALSE(problems_of(entries).empty()) << i;
  }
}

TEST(LedgerAudit, ASecondFateIsFoundWithItsLine) {
  std::vector<LedgerEntry> entries = sound();
  entries.emplace_back(end_of(2, Outcome::kTrained, 0));
  EXPECT_THAT(
      problems_of(entries),
      ElementsAre(testing::AllOf(HasSubstr("line 12 (byte "),
                                 HasSubstr("prompt 2: trained after it had a final outcome"))));
}

TEST(LedgerAudit, AFateOfAPromptThatWasNotGivenOutIsFound) {
  std::vector<LedgerEntry> entries = sound();
  entries.emplace_back(end_of(9, Outcome::kTrained, 3));
  EXPECT_THAT(problems_of(entries),
              ElementsAre(HasSubstr("prompt 9: trained without being dispatched")));
}

TEST(LedgerAudit, DiscardedTokensThatAFateForgetsAreFound) {
  std::vector<LedgerEntry> entries = sound();
  entries.emplace_back(end_of(4, Outcome::kTrained, 21, 3));
  EXPECT_THAT(problems_of(entries),
              ElementsAre(HasSubstr("with 3 discarded tokens, after it had 4")));
}

TEST(LedgerAudit, WhatFollowsTheCheckpointIsToldApart) {
  std::vector<LedgerEntry> entries = sound();
  entries.emplace_back(given_out(5));
  entries.emplace_back(end_of(4, Outcome::kTrained, 50, 4));
  const LedgerAudit audit = audit_ledger(written(entries));
  EXPECT_THAT(audit.problems, ElementsAre());
  EXPECT_EQ(audit.num_behind, 2);
  EXPECT_EQ(audit.prompts.trained, 2);
  EXPECT_EQ(audit.checkpoint->prompts.trained, 1);
}

TEST(LedgerAudit, TheCheckpointThatIsAskedForIsTheOneThatIsShown) {
  std::vector<LedgerEntry> entries = sound();
  const auto position = static_cast<int64_t>(std::filesystem::file_size(written(entries)));
  entries.emplace_back(end_of(4, Outcome::kTrained, 21, 4));
  entries.emplace_back(LedgerTotals{.step = 8, .next_ordinal = 5, .generated = 100});
  EXPECT_EQ(audit_ledger(written(entries)).checkpoint->totals.step, 8);
  const LedgerAudit audit = audit_ledger(written(entries), position);
  EXPECT_THAT(audit.problems, ElementsAre());
  EXPECT_EQ(audit.checkpoint->totals.step, 7);
  EXPECT_EQ(audit.num_checkpoints, 2);
  EXPECT_EQ(audit.num_behind, 2);
}

TEST(LedgerAudit, ACheckpointBehindTheEndIsFound) {
  const LedgerAudit audit = audit_ledger(written(sound()), 100'000);
  EXPECT_THAT(audit.problems,
              ElementsAre(HasSubstr("newest checkpoint was written at byte 100000")));
}

TEST(LedgerAudit, WhatWasRolledBackDoesNotCount) {
  std::vector<LedgerEntry> entries = sound();
  const auto position = static_cast<int64_t>(std::filesystem::file_size(written(entries)));
  entries.emplace_back(end_of(4, Outcome::kFailed, 60, 9));
  entries.emplace_back(Rollback{position});
  entries.emplace_back(end_of(4, Outcome::kTrained, 40, 4));
  entries.emplace_back(LedgerTotals{.step = 8, .next_ordinal = 5, .generated = 119});
  const std::filesystem::path path = written(entries);
  const LedgerAudit audit = audit_ledger(path);
  EXPECT_THAT(audit.problems, ElementsAre());
  EXPECT_EQ(audit.num_rolled_back, 1);
  EXPECT_EQ(audit.num_rollbacks, 1);
  const std::vector<LedgerStep> steps = path_of(path, 4);
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_EQ(steps[0].line, 5);
  EXPECT_EQ(steps[1].record.discarded, 4);
  EXPECT_FALSE(steps[2].counts);
  EXPECT_EQ(steps[2].position, position);
  EXPECT_EQ(steps[3].record.tokens, 40);
  EXPECT_TRUE(steps[3].counts);
}

TEST(LedgerAudit, ARollbackIntoTheMiddleOfALineIsFound) {
  std::vector<LedgerEntry> entries = sound();
  entries.emplace_back(Rollback{3});
  EXPECT_THAT(audit_ledger(written(entries)).problems,
              testing::Contains(HasSubstr("rolls back to byte 3, where no line begins")));
}

TEST(LedgerAudit, EveryDamagedLineIsNamed) {
  const std::filesystem::path path = written(sound());
  std::string bytes;
  {
    std::ifstream file(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  const std::size_t second = bytes.find('\n') + 1;
  bytes[second + 12] ^= 1;
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_THAT(audit_ledger(path).problems,
              testing::Contains(HasSubstr(fmt::format("line 2 (byte {}): damaged", second))));
  std::ofstream(path, std::ios::binary) << bytes.substr(0, second + 5);  // a kill, not damage
  const LedgerAudit torn = audit_ledger(path);
  EXPECT_THAT(torn.problems, ElementsAre());
  EXPECT_EQ(torn.torn_begin, static_cast<int64_t>(second));
  EXPECT_EQ(torn.torn_bytes, 5);
}

TEST(LedgerAudit, WhatARunTookOverIsWhereItsCountsBegin) {
  // Prompts 3 and 6 of another run wait with 12 tokens; 7 is the first of this one.
  EXPECT_THAT(
      problems_of(
          {given_out(3), given_out(6),
           LedgerTotals{.next_ordinal = 7, .open_prompts = 2, .generated = 12, .pending = 12},
           given_out(7), end_of(3, Outcome::kTrained, 9, 2), end_of(6, Outcome::kTrained, 11),
           end_of(7, Outcome::kTrained, 5),
           LedgerTotals{.step = 4, .next_ordinal = 8, .generated = 27}}),
      ElementsAre());
}

TEST(LedgerAudit, NoMoreProblemsThanHelpAreKept) {
  std::vector<LedgerEntry> entries;
  for (int64_t ordinal = 0; ordinal < 50; ++ordinal)
    entries.emplace_back(end_of(ordinal, Outcome::kTrained, 1));
  const LedgerAudit audit = audit_ledger(written(entries));
  EXPECT_EQ(audit.num_problems, 50);
  EXPECT_EQ(audit.problems.size(), LedgerAudit::kMostProblems);
}

TEST(LedgerAudit, AnEmptyLedgerAddsUpAndOneThatIsNotThereIsRefused) {
  EXPECT_THAT(problems_of({}), ElementsAre());
  EXPECT_THROW(audit_ledger("/nowhere/x.ledger"), ConfigError);
  EXPECT_THROW(path_of("/nowhere/x.ledger", 0), ConfigError);
}

}  // namespace
}  // namespace slime::buffer
