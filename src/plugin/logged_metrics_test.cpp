#include "plugin/logged_metrics.h"

#include <gtest/gtest.h>

#include "net/frame_channel.h"

namespace slime::plugin {
namespace {

json::object object(const char* text) { return json::parse(text).as_object(); }

TEST(LoggedMetrics, TheLastValueOfANameCountsAndSpansOfAllHostsAreAddedUp) {
  LoggedMetrics logged;
  logged.add(object(R"({"metrics":{"mine/a":1,"mine/b":2.5,"mine/yes":true}})"));
  logged.add(object(R"({"metrics":{"mine/a":3},"spans":{"tool":[2,1.0,0.75]}})"));
  logged.add(object(R"({"spans":{"tool":[1,2.0,2.0]}})"));
  EXPECT_EQ(logged.take(), (report::Metrics{{"mine/a", 3},
                                            {"mine/b", 2.5},
                                            {"mine/yes", 1},
                                            {"rollout/trace/tool/count", 3},
                                            {"rollout/trace/tool/max_seconds", 2},
                                            {"rollout/trace/tool/mean_seconds", 1}}));
  EXPECT_TRUE(logged.take().empty());
}

TEST(LoggedMetrics, WhatACallLogsIsOfThatCallAndTheStepKeepsItsOwn) {
  LoggedMetrics logged;
  logged.add(object(R"({"metrics":{"mine/a":1,"mine/b":2}})"));
  const report::Metrics of_call = logged.logged_by(
      [&] { logged.add(object(R"({"metrics":{"eval/a":3},"spans":{"tool":[1,2.0,2.0]}})")); });
  EXPECT_EQ(of_call, (report::Metrics{{"eval/a", 3}}));
  const report::Metrics of_step = logged.take();
  EXPECT_EQ(of_step.size(), 5U);
  EXPECT_EQ(of_step.at("mine/b"), 2);
  EXPECT_EQ(of_step.at("rollout/trace/tool/count"), 1);
}

TEST(LoggedMetrics, WhatIsNoNumberIsRefusedAndNothingOfItKept) {
  LoggedMetrics logged;
  for (const char* text :
       {R"({"metrics":{"a":1,"b":"2"}})", R"({"metrics":{"a":1,"b":null}})", R"({"metrics":[1]})",
        R"({"metrics":{"":1}})", R"({"spans":{"a":[1,2]}})", R"({"spans":{"a":1}})",
        R"({"metrics":{"a\nb":1}})"})
    EXPECT_THROW(logged.add(object(text)), net::FrameError) << text;
  EXPECT_TRUE(logged.take().empty());
}

}  // namespace
}  // namespace slime::plugin
