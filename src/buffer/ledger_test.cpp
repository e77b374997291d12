#include "buffer/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "buffer/ledger_audit.h"
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
  return {.ordinal = ordinal, .outcome = Outcome::kTrained, .step = step, .reason = ""};
}
LedgerRecord dispatched(int64_t ordinal) {
  return {.ordinal = ordinal, .outcome = Outcome::kDispatched, .step = -1, .reason = ""};
}

TEST(Ledger, CountsWherePromptsAre) {
  const std::filesystem::path path = fresh("counts.ledger");
  Ledger ledger = Ledger::create(path);
  for (int64_t ordinal = 0; ordinal < 5; ++ordinal) ledger.append(dispatched(ordinal));
  ledger.append({.ordinal = 0, .outcome = Outcome::kPartial});
  ledger.append({.ordinal = 1, .outcome = Outcome::kScored});
  ledger.append(trained(1, 0));
  ledger.append({.ordinal = 2, .outcome = Outcome::kFiltered, .reason = "zero_std_1"});
  ledger.append({.ordinal = 3,
                 .outcome = Outcome::kFailed,
                 .reason = "judge: \"timeout\"\nafter 3 attempts"});
  const LedgerSummary expected{
      .dispatched = 5, .in_flight = 2, .trained = 1, .filtered = 1, .failed = 1};
  EXPECT_EQ(ledger.summary(), expected);
  EXPECT_THAT(ledger.in_flight(), ElementsAre(0, 4));
  EXPECT_EQ(ledger.commit(), static_cast<int64_t>(std::filesystem::file_size(path)));

  const LedgerAudit audit = audit_ledger(path);
  EXPECT_EQ(audit.prompts, expected);
  EXPECT_THAT(audit.problems, ElementsAre());
  EXPECT_EQ(path_of(path, 3).back().record.reason, "judge: \"timeout\"\nafter 3 attempts");
  EXPECT_EQ(path_of(path, 1).back().record.step, 0);
}

TEST(Ledger, RefusesASecondFateAndAPromptThatWasNotDispatched) {
  Ledger ledger = Ledger::create(fresh("refuses.ledger"));
  ledger.append(dispatched(7));
  ledger.append(trained(7, 3));
  EXPECT_THROW(ledger.append(trained(7, 4)), BugError);
  EXPECT_THROW(ledger.append(dispatched(7)), BugError);
  EXPECT_THROW(ledger.append({.ordinal = 8, .outcome = Outcome::kScored}), BugError);
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
  EXPECT_EQ(audit.prompts.trained, 2);
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
    ledger.append({.ordinal = 1, .outcome = Outcome::kFailed, .reason = "engine"});
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
    EXPECT_EQ(audit.prompts.trained, 2);
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
    const LedgerAudit audit = audit_ledger(path);
    EXPECT_TRUE(audit.torn_bytes > 0 || audit.num_problems > 0) << byte;
  }
}

TEST(Ledger, ASkippedPromptIsCountedAsSuchAndEndsThere) {
  const std::filesystem::path path = fresh("skipped.ledger");
  {
    Ledger ledger = Ledger::create(path);
    ledger.append(dispatched(0));
    ledger.append(
        {.ordinal = 0, .outcome = Outcome::kSkipped, .step = 2, .reason = "the loss is nan"});
    EXPECT_THROW(ledger.append(trained(0, 2)), BugError);
    EXPECT_TRUE(ledger.in_flight().empty());
  }
  const LedgerAudit audit = audit_ledger(path);
  EXPECT_EQ(audit.prompts, (LedgerSummary{.dispatched = 1, .skipped = 1}));
  EXPECT_EQ(path_of(path, 0).back().record.reason, "the loss is nan");
  EXPECT_EQ(path_of(path, 0).back().record.step, 2);
}

/// Takes as many bytes as there is room for, tears the line, and then may not even cut it.
class FullDisk final : public AppendFile {
 public:
  FullDisk(std::unique_ptr<AppendFile> file, int64_t& room, bool& cuts)
      : file_(std::move(file)), room_(room), cuts_(cuts) {}

  Expected<void> append(std::string_view bytes) override {
    const auto taken = std::min<std::size_t>(bytes.size(), static_cast<std::size_t>(room_));
    room_ -= static_cast<int64_t>(taken);
    const Expected<void> appended = file_->append(bytes.substr(0, taken));
    return taken < bytes.size() ? failure("No space left on device") : appended;
  }
  Expected<void> sync() override { return file_->sync(); }
  Expected<void> truncate(int64_t size) override {
    return cuts_ ? file_->truncate(size) : failure("Input/output error");
  }
  Expected<int64_t> size() const override { return file_->size(); }

 private:
  std::unique_ptr<AppendFile> file_;
  int64_t& room_;
  bool& cuts_;
};

TEST(Ledger, AFullDiskTearsNoLineThatIsFollowedByAnother) {
  const std::filesystem::path path = fresh("full.ledger");
  int64_t room = 60;  // one line and a part of the next
  bool cuts = false;
  Ledger ledger =
      Ledger::create(path, std::make_unique<FullDisk>(create_append_file(path), room, cuts));
  ledger.append(dispatched(0));
  EXPECT_THROW(ledger.append(dispatched(1)), ConfigError);
  EXPECT_EQ(audit_ledger(path).torn_bytes, 60 - audit_ledger(path).torn_begin);
  EXPECT_THROW(ledger.append(dispatched(1)), ConfigError);  // the torn line is still there
  room = 1000;
  cuts = true;
  ledger.append(dispatched(1));
  EXPECT_EQ(ledger.commit(), static_cast<int64_t>(std::filesystem::file_size(path)));
  const LedgerAudit audit = audit_ledger(path);
  EXPECT_THAT(audit.problems, ElementsAre());
  EXPECT_EQ(audit.torn_bytes, 0);
  EXPECT_EQ(audit.prompts.dispatched, 2);
}

TEST(Ledger, ALedgerWithoutTokensOpensAndTotalsFollow) {
  const std::filesystem::path path = fresh("old.ledger");
  const LedgerTotals taken_over{.next_ordinal = 2, .open_prompts = 1, .generated = 7, .pending = 7};
  int64_t position = 0;
  {
    Ledger ledger = Ledger::create(path);
    ledger.append(dispatched(0));
    ledger.append(dispatched(1));
    ledger.append(trained(0, 0));
    position = ledger.commit();
    EXPECT_FALSE(ledger.totals().has_value());
  }
  {
    Ledger ledger = Ledger::open_at(path, position);
    ledger.append(taken_over);
    position = ledger.commit();
  }
  EXPECT_EQ(Ledger::open_at(path, position).totals(), taken_over);
  const LedgerAudit audit = audit_ledger(path, position);
  EXPECT_THAT(audit.problems, ElementsAre());
  EXPECT_EQ(audit.tokens.num_not_counted, 1);
}

}  // namespace
}  // namespace slime::buffer
