#include "text/grammar/grammar_compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "text/grammar/grammar_matcher.h"

namespace slime::text {
namespace {

using testing::HasSubstr;

std::shared_ptr<const GrammarVocabulary> byte_vocabulary() {
  return std::make_shared<const GrammarVocabulary>(GrammarVocabulary::of_bytes());
}

GrammarSpec regex(std::string source) {
  return {.kind = GrammarKind::kRegex, .source = std::move(source)};
}

/// Sizes are measured after the answer.
template <typename Condition>
bool eventually(const Condition& condition) {
  for (int i = 0; i < 1000 && !condition(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return condition();
}

/// Takes tens of milliseconds at least.
GrammarSpec slow_schema(int seed = 0) {
  std::string values;
  for (int i = 0; i < 4500; ++i)
    values += (i > 0 ? ",\"" : "\"") + std::to_string(i * 7919 + seed) + "\"";
  return {.kind = GrammarKind::kJsonSchema, .source = R"({"enum": [)" + values + "]}"};
}

TEST(GrammarCompiler, CompilesAGrammarOnceForAllWhoAsk) {
  GrammarCompiler compiler(byte_vocabulary(), {});
  std::vector<std::future<GrammarResult>> results;
  for (int i = 0; i < 16; ++i) {
    auto promise = std::make_shared<std::promise<GrammarResult>>();
    results.push_back(promise->get_future());
    compiler.compile(slow_schema(),
                     [promise](GrammarResult result) { promise->set_value(std::move(result)); });
  }
  const GrammarResult first = results[0].get();
  ASSERT_TRUE(first.has_value()) << first.error().message;
  for (int i = 1; i < 16; ++i) EXPECT_EQ(*results[static_cast<std::size_t>(i)].get(), *first);
  EXPECT_EQ(compiler.counts().compiled, 1);
  EXPECT_EQ(*compiler.compile(slow_schema()), *first);
  EXPECT_EQ(compiler.counts().cache_hits, 1);
  EXPECT_TRUE(eventually([&] { return compiler.counts().cache_bytes > 0; }));
}

TEST(GrammarCompiler, RefusalsSayWhyAndAreKept) {
  GrammarCompiler compiler(byte_vocabulary(), {});
  for (int i = 0; i < 2; ++i) {
    const GrammarResult result = compiler.compile(regex("a(?=b)"));
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().kind, GrammarFailure::kRefused);
    EXPECT_THAT(result.error().message, HasSubstr("regex, position 2: lookahead"));
  }
  EXPECT_EQ(compiler.counts().refused, 1);
  EXPECT_EQ(compiler.counts().cache_hits, 1);
}

TEST(GrammarCompiler, ThoseUnusedForLongestLeaveTheCache) {
  GrammarCompilerConfig config;
  config.cache_bytes = 1;  // the last one alone
  GrammarCompiler compiler(byte_vocabulary(), config);
  const auto first = compiler.compile(regex("a+"));
  EXPECT_TRUE(compiler.compile(regex("b+")).has_value());
  EXPECT_TRUE(eventually([&] { return compiler.counts().cached == 1; }));
  EXPECT_TRUE(compiler.compile(regex("a+")).has_value());
  EXPECT_EQ(compiler.counts().compiled, 3) << "compiled anew";
  EXPECT_TRUE(GrammarMatcher(*first).accept_text("aa")) << "who has one keeps it";
  compiler.clear_cache();
  EXPECT_EQ(compiler.counts().cached, 0);
}

TEST(GrammarCompiler, TooManyAreRefusedAndThoseWhoWaitTooLongAreToldSo) {
  GrammarCompilerConfig config;
  config.num_threads = 1;
  config.num_waiting = 1;
  config.time_limit = std::chrono::milliseconds(1);
  GrammarCompiler compiler(byte_vocabulary(), config);
  std::vector<std::future<GrammarResult>> results;
  for (int i = 0; i < 4; ++i) {
    auto promise = std::make_shared<std::promise<GrammarResult>>();
    results.push_back(promise->get_future());
    compiler.compile(slow_schema(i),
                     [promise](GrammarResult result) { promise->set_value(std::move(result)); });
  }
  int num_busy = 0;
  for (auto& future : results) {
    const GrammarResult result = future.get();
    ASSERT_FALSE(result.has_value()) << "a millisecond is not enough for any";
    if (result.error().kind == GrammarFailure::kBusy) {
      ++num_busy;
    } else {
      EXPECT_EQ(result.error().kind, GrammarFailure::kTooSlow);
      EXPECT_THAT(result.error().message, HasSubstr("longer to compile than 1 ms"));
    }
  }
  EXPECT_GE(num_busy, 2);
}

TEST(GrammarCompiler, WhatWasTooSlowIsKeptWhenItIsReady) {
  GrammarCompilerConfig config;
  config.time_limit = std::chrono::milliseconds(1);
  GrammarCompiler compiler(byte_vocabulary(), config);
  GrammarResult result = compiler.compile(slow_schema());
  for (int i = 0; i < 3000 && !result.has_value(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    result = compiler.compile(slow_schema());
  }
  EXPECT_TRUE(result.has_value());
}

TEST(GrammarCompiler, ItsEndAnswersThoseWhoWait) {
  std::atomic<int> answers = 0;
  {
    GrammarCompilerConfig config;
    config.num_threads = 1;
    GrammarCompiler compiler(byte_vocabulary(), config);
    for (int i = 0; i < 5; ++i) compiler.compile(slow_schema(i), [&](GrammarResult) { ++answers; });
  }
  EXPECT_EQ(answers, 5);
}

}  // namespace
}  // namespace slime::text
