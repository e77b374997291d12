#include "kernels/trace.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "core/error.h"
#include "core/json.h"

namespace slime::kernels {
namespace {

std::map<std::string, std::set<std::string>> threads_of_ranges(const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const json::value trace = json::parse(text);
  std::map<std::string, std::set<std::string>> threads;
  for (const json::value& event : trace.at("traceEvents").as_array()) {
    if (event.as_object().contains("name") && event.as_object().contains("tid"))
      threads[std::string(event.at("name").as_string())].insert(json_text(event.at("tid")));
  }
  return threads;
}

TEST(Trace, HoldsTheRangesAndOperatorsOfAllThreads) {
  const std::string path = testing::TempDir() + "trace_test.json";
  { const TraceRange before("before the trace"); }
  begin_trace(/*with_gpu=*/false);
  EXPECT_THROW(begin_trace(false), ConfigError);
  {
    const TraceRange outer("outer");
    const TraceRange inner("inner");
    at::ones({4, 4}).mm(at::ones({4, 4}));
  }
  std::thread([] { const TraceRange elsewhere("elsewhere"); }).join();
  end_trace(path);

  const auto threads = threads_of_ranges(path);
  ASSERT_TRUE(threads.contains("outer") && threads.contains("inner") &&
              threads.contains("elsewhere"));
  EXPECT_TRUE(threads.contains("aten::mm"));
  EXPECT_FALSE(threads.contains("before the trace"));
  EXPECT_EQ(threads.at("outer"), threads.at("inner"));
  EXPECT_NE(threads.at("outer"), threads.at("elsewhere"));
  std::filesystem::remove(path);
}

TEST(Trace, SaysWhenItsFileCannotBeWritten) {
  begin_trace(false);
  EXPECT_THROW(end_trace(testing::TempDir() + "no-such-folder/trace.json"), ConfigError);
}

}  // namespace
}  // namespace slime::kernels
