#include "report/timeline.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "core/json.h"

namespace slime::report {
namespace {

class TickingClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  double unix_seconds() const override { return 1000 + seconds_between(TimePoint(), now_); }
  void pass(double seconds) {
    now_ += std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  }

 private:
  TimePoint now_;
};

class TimelineTest : public testing::Test {
 protected:
  ~TimelineTest() override { std::filesystem::remove(path_); }
  std::vector<json::object> lines() const {
    std::vector<json::object> out;
    std::ifstream in(path_);
    for (std::string line; std::getline(in, line);)
      out.push_back(parse_json(line, "timeline").get_object());
    return out;
  }

  const std::filesystem::path path_ = std::filesystem::temp_directory_path() /
                                      ("slime_timeline_" + std::to_string(::getpid()) + ".jsonl");
  TickingClock clock_;
};

json::value spans(const std::string& text) { return parse_json(text, "spans"); }

TEST_F(TimelineTest, AStepIsALineWithThePhasesOfEachLane) {
  Timeline timeline(path_, clock_);
  timeline.enter("trainer", "wait");
  timeline.enter("engine", "generate");
  clock_.pass(0.3);
  timeline.enter("trainer", "train");
  clock_.pass(0.2);
  timeline.enter("engine", "");
  clock_.pass(0.3);
  EXPECT_NEAR(timeline.seconds("trainer", "wait"), 0.3, 1e-9);
  EXPECT_NEAR(timeline.seconds("trainer", "train"), 0.5, 1e-9) << "it goes on";
  EXPECT_EQ(timeline.seconds("nobody", "sleep"), 0);
  timeline.end_step(0);
  EXPECT_EQ(timeline.seconds("trainer", "wait"), 0);
  clock_.pass(0.1);
  timeline.end_step(1);
  const auto all = lines();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].at("ms"), 800);
  EXPECT_EQ(all[0].at("time").to_number<double>(), 1000);
  EXPECT_EQ(all[0].at("trainer"), spans(R"([["wait", 0, 300], ["train", 300, 500]])"));
  EXPECT_EQ(all[0].at("engine"), spans(R"([["generate", 0, 500]])"));
  EXPECT_EQ(all[1].at("trainer"), spans(R"([["train", 0, 100]])")) << "a phase may last for steps";
  EXPECT_FALSE(all[1].contains("engine"));
}

TEST_F(TimelineTest, ALaneOfSeveralIsBusyWhileAnyOfThemIs) {
  Timeline timeline(path_, clock_);
  timeline.join("rewards", "score");
  clock_.pass(0.1);
  timeline.join("rewards", "score");
  clock_.pass(0.1);
  timeline.leave("rewards");
  clock_.pass(0.1);
  timeline.leave("rewards");
  clock_.pass(0.1);
  timeline.end_step(0);
  EXPECT_EQ(lines().at(0).at("rewards"), spans(R"([["score", 0, 300]])"));
}

TEST_F(TimelineTest, ManyShortPhasesAreSummedUp) {
  Timeline timeline(path_, clock_);
  for (int i = 0; i < 1000; ++i) {
    timeline.enter("engine", "generate");
    clock_.pass(0.0004);  // shorter than a line can say
    timeline.enter("engine", "paused");
    clock_.pass(0.0016);
    timeline.enter("engine", "");
    clock_.pass(0.002);
  }
  timeline.end_step(0);
  const json::object line = lines().at(0);
  EXPECT_EQ(line.at("summed"), spans(R"(["engine"])"));
  const json::array& engine = line.at("engine").as_array();
  ASSERT_EQ(engine.size(), 2u);
  EXPECT_NEAR(engine[0].at(2).to_number<double>(), 400, 100);
  EXPECT_NEAR(engine[1].at(2).to_number<double>(), 1600, 100);
}

TEST_F(TimelineTest, TheFileOfALongRunStaysSmall) {
  {
    Timeline timeline(path_, clock_);
    for (int64_t step = 0; step < 40'000; ++step) {
      timeline.enter("trainer", "wait");
      clock_.pass(0.5);
      timeline.enter("trainer", "train");
      clock_.pass(0.5);
      timeline.end_step(step);
    }
    timeline.finish();
  }
  EXPECT_LT(std::filesystem::file_size(path_), 2'000'000u);
  const auto all = lines();
  EXPECT_EQ(all.at(1000).at("steps"), 1) << "the first steps are each a line";
  EXPECT_EQ(all.back().at("step"), 39'999);
  double seconds = 0;
  int64_t steps = 0;
  for (const json::object& line : all) {
    seconds += line.at("ms").to_number<double>() / 1000;
    steps += line.at("steps").to_number<int64_t>();
  }
  EXPECT_EQ(steps, 40'000);
  EXPECT_NEAR(seconds, 40'000, 1);
}

TEST_F(TimelineTest, ARunWithoutStepsLeavesNoFile) {
  Timeline timeline(path_, clock_);
  timeline.enter("trainer", "save");
  clock_.pass(1);
  timeline.finish();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace slime::report
