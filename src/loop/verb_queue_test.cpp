#include "loop/verb_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "core/error.h"

namespace slime::loop {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{5'000};

std::optional<std::size_t> first(const std::deque<Verb>& waiting) {
  return waiting.empty() ? std::nullopt : std::optional<std::size_t>(0);
}

std::string message_of(const std::optional<VerbAnswer>& answer) {
  const auto* error = answer ? std::get_if<VerbError>(&*answer) : nullptr;
  return error != nullptr ? error->message : "";
}

TEST(VerbQueue, VerbsComeInTheOrderOfAsking) {
  VerbQueue queue;
  queue.add("generate", {});
  queue.add("train", {});
  EXPECT_EQ(queue.next(first, kLong)->name, "generate");
  queue.answer(1, json::object{});
  EXPECT_EQ(queue.next(first, kLong)->name, "train");
}

TEST(VerbQueue, AnAnswerStaysForWhoAsksAgain) {
  VerbQueue queue;
  const int64_t number = queue.add("train", {});
  EXPECT_FALSE(queue.answer_of(number).has_value());
  queue.next(first, kLong);
  queue.answer(number, json::object{{"step", 3}});
  for (int time = 0; time < 2; ++time)
    EXPECT_EQ(std::get<json::object>(*queue.answer_of(number)).at("step"), 3);
}

TEST(VerbQueue, WhoAwaitsIsCalledOnceAndSeen) {
  VerbQueue queue;
  const int64_t number = queue.add("generate", {});
  const auto awaited = [](const std::deque<Verb>& waiting) {
    return waiting.empty() || !waiting.front().is_awaited ? std::nullopt
                                                          : std::optional<std::size_t>(0);
  };
  EXPECT_FALSE(queue.next(awaited, milliseconds(0)).has_value());
  int num_calls = 0;
  queue.call_when_answered(number, [&] { ++num_calls; });
  EXPECT_TRUE(queue.next(awaited, kLong).has_value());
  EXPECT_EQ(num_calls, 0);
  queue.answer(number, json::object{});
  EXPECT_EQ(num_calls, 1);
  queue.call_when_answered(number, [&] { ++num_calls; });
  EXPECT_EQ(num_calls, 2) << "it is answered";
}

TEST(VerbQueue, WaitsForAVerbThatComesLater) {
  VerbQueue queue;
  std::thread asks([&] { queue.add("save", {}); });
  EXPECT_EQ(queue.next(first, kLong)->name, "save");
  asks.join();
  EXPECT_TRUE(queue.has("save")) << "it is under way";
  EXPECT_FALSE(queue.has("train"));
}

TEST(VerbQueue, AfterTheEndEverybodyHearsWhy) {
  VerbQueue queue;
  const int64_t under_way = queue.add("train", {});
  const int64_t waiting = queue.add("save", {});
  queue.next(first, kLong);
  queue.end({.message = "the disk is full"});
  const int64_t late = queue.add("generate", {});
  for (const int64_t number : {under_way, waiting, late})
    EXPECT_EQ(message_of(queue.answer_of(number)), "the disk is full");
}

TEST(VerbQueue, NumbersThatAreNotThereAreRefused) {
  VerbQueue queue;
  EXPECT_THROW(queue.answer_of(1), ConfigError);
  for (std::size_t i = 0; i <= VerbQueue::kKeptAnswers; ++i) {
    const int64_t number = queue.add("settle", {});
    queue.next(first, kLong);
    queue.answer(number, json::object{});
  }
  EXPECT_THROW(queue.answer_of(1), ConfigError) << "forgotten";
  EXPECT_TRUE(queue.answer_of(2).has_value());
}

TEST(VerbQueue, TooManyThatWaitAreRefused) {
  VerbQueue queue;
  for (std::size_t i = 0; i < VerbQueue::kMostWaiting; ++i) queue.add("settle", {});
  EXPECT_THROW(queue.add("settle", {}), ConfigError);
}

}  // namespace
}  // namespace slime::loop
