#include "report/tracking.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

#include "core/json.h"

namespace slime::report {
namespace {

namespace fs = std::filesystem;

class FixedClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(); }
  double unix_seconds() const override { return 1765432100.25; }
};

class TrackingTest : public testing::Test {
 protected:
  TrackingTest()
      : folder_(fs::temp_directory_path() / ("slime_tracking_" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
  }
  ~TrackingTest() override { fs::remove_all(folder_); }

  std::string read(const fs::path& path) const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string lines() const { return read(folder_ / "metrics.jsonl"); }
  fs::path event_file() const { return fs::directory_iterator(folder_ / "tensorboard")->path(); }

  const fs::path folder_;
  const FixedClock clock_;
};

/// Steps of all whole records; the version record counts as 0.
std::vector<int64_t> steps_of(const std::string& events) {
  std::vector<int64_t> steps;
  std::size_t offset = 0;
  while (const auto record = read_event_record(std::string_view(events).substr(offset))) {
    steps.push_back(record->step);
    offset += record->size_bytes;
  }
  EXPECT_EQ(offset, events.size());
  return steps;
}

TEST_F(TrackingTest, WritesOneJsonLinePerStepThatReadsBackExactly) {
  Tracker tracker(folder_, 0, clock_);
  tracker.write(3, {{"rollout/raw_reward", 0.1 + 0.2}, {"train/loss", -1e-300}});
  EXPECT_EQ(lines(),
            "{\"step\": 3, \"time\": 1765432100.250, \"rollout/raw_reward\": 0.30000000000000004, "
            "\"train/loss\": -1e-300}\n");
}

TEST_F(TrackingTest, ANumberThatIsNotFiniteIsNullInJson) {
  Tracker tracker(folder_, 0, clock_);
  tracker.write(0, {{"a", std::nan("")}, {"b", std::numeric_limits<double>::infinity()}});
  const json::value line = parse_json(lines(), "metrics.jsonl");
  EXPECT_TRUE(line.at("a").is_null());
  EXPECT_TRUE(line.at("b").is_null());
}

TEST_F(TrackingTest, NamesAreEscaped) {
  Tracker tracker(folder_, 0, clock_);
  tracker.write(0, {{"eval/a \"quoted\"\nname", 1}});
  EXPECT_EQ(parse_json(lines(), "metrics.jsonl").at("eval/a \"quoted\"\nname").to_number<double>(),
            1.0);
}

TEST_F(TrackingTest, AResumedRunCutsWhatItWillWriteAgain) {
  {
    Tracker tracker(folder_, 0, clock_);
    for (int64_t step = 0; step < 300; step += 100)
      tracker.write(step, {{"x", static_cast<double>(step)}});
  }
  {
    Tracker tracker(folder_, 200, clock_);
    tracker.write(200, {{"x", -1.0}});
  }
  const std::string text = lines();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_TRUE(text.ends_with("\"x\": -1}\n"));
  EXPECT_EQ(steps_of(read(event_file())), (std::vector<int64_t>{0, 0, 100, 200}));
}

TEST_F(TrackingTest, TheRowOfAnEvaluationStaysThoughLaterStepsWereWrittenBeforeIt) {
  {
    Tracker tracker(folder_, 0, clock_);
    for (const int64_t step : {0, 1, 2, 3}) tracker.write(step, {{"x", 1.0}});
    tracker.write(1, {{"eval/test", 0.5}});
    tracker.write(4, {{"x", 1.0}});
  }
  EXPECT_EQ(last_evaluated_step(folder_ / "metrics.jsonl"), 1);
  { const Tracker tracker(folder_, 2, clock_); }
  EXPECT_EQ(std::ranges::count(lines(), '\n'), 3);
  EXPECT_NE(lines().find("\"eval/test\": 0.5"), std::string::npos);
  EXPECT_EQ(steps_of(read(event_file())), (std::vector<int64_t>{0, 0, 1, 1}));
  { const Tracker tracker(folder_, 1, clock_); }
  EXPECT_EQ(last_evaluated_step(folder_ / "metrics.jsonl"), std::nullopt) << "it will come again";
}

TEST_F(TrackingTest, UpdatesStandAtTheirOwnStepsAndAreCutWithTheirRollout) {
  const auto write_rollout = [](Tracker& tracker, int64_t step) {
    tracker.write(step, {{"train/step", 2.0 * step}, {"train/loss", 0.5}});
    tracker.write(step, {{"train/step", 2.0 * step + 1}, {"train/loss", 0.25}, {"rollout/x", 1}});
  };
  {
    Tracker tracker(folder_, 0, clock_);
    for (int64_t step = 0; step < 3; ++step) write_rollout(tracker, step);
  }
  // The version record, and for each rollout two updates and itself.
  EXPECT_EQ(steps_of(read(event_file())), (std::vector<int64_t>{0, 0, 1, 0, 2, 3, 1, 4, 5, 2}));
  Tracker resumed(folder_, 2, clock_);
  EXPECT_EQ(steps_of(read(event_file())), (std::vector<int64_t>{0, 0, 1, 0, 2, 3, 1}));
  write_rollout(resumed, 2);
  EXPECT_EQ(steps_of(read(event_file())), (std::vector<int64_t>{0, 0, 1, 0, 2, 3, 1, 4, 5, 2}));
}

TEST_F(TrackingTest, TornLastRecordsAreCut) {
  {
    Tracker tracker(folder_, 0, clock_);
    tracker.write(0, {{"x", 1.0}});
    tracker.write(1, {{"x", 2.0}});
  }
  fs::resize_file(folder_ / "metrics.jsonl", fs::file_size(folder_ / "metrics.jsonl") - 4);
  fs::resize_file(event_file(), fs::file_size(event_file()) - 4);
  const Tracker tracker(folder_, 50, clock_);
  EXPECT_EQ(std::ranges::count(lines(), '\n'), 1);
  EXPECT_EQ(steps_of(read(event_file())), (std::vector<int64_t>{0, 0}));
}

TEST_F(TrackingTest, StartingAgainAtStepZeroKeepsOnlyTheVersionRecord) {
  { Tracker(folder_, 0, clock_).write(0, {{"x", 1.0}}); }
  const Tracker tracker(folder_, 0, clock_);
  EXPECT_EQ(lines(), "");
  EXPECT_EQ(steps_of(read(event_file())), std::vector<int64_t>{0});
}

TEST_F(TrackingTest, AFolderThatCannotBeWrittenIsNamed) {
  std::ofstream(folder_) << "a file, not a folder";
  try {
    const Tracker tracker(folder_, 0, clock_);
    FAIL() << "nothing was thrown";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find(folder_.string()), std::string::npos) << error.what();
  }
}

// The expected bytes are those that TensorBoard's own writer (tensorboard.summary.writer) makes for
// this event.
TEST(EventFile, ARecordHasTheBytesOfTensorBoardsWriter) {
  const std::string record = scalars_record(1.5, 300, {{"a/b", 0.5}});
  const std::string expected(
      "\x1A\0\0\0\0\0\0\0"
      "\0\0\0\0"
      "\x09\0\0\0\0\0\0\xF8\x3F"
      "\x10\xAC\x02"
      "\x2A\x0C"
      "\x0A\x0A"
      "\x0A\x03"
      "a/b"
      "\x15\0\0\0\x3F"
      "\0\0\0\0",
      42);
  ASSERT_EQ(record.size(), expected.size());
  EXPECT_EQ(record.substr(0, 8), expected.substr(0, 8));
  EXPECT_EQ(record.substr(12, 26), expected.substr(12, 26));
}

TEST(EventFile, AChangedByteIsNoticed) {
  std::string record = scalars_record(1.5, 300, {{"a/b", 0.5}});
  ASSERT_TRUE(read_event_record(record));
  for (std::size_t i = 0; i < record.size(); ++i) {
    record[i] ^= 1;
    EXPECT_FALSE(read_event_record(record)) << "byte " << i;
    record[i] ^= 1;
  }
}

}  // namespace
}  // namespace slime::report
