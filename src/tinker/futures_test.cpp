#include "tinker/futures.h"

#include <gtest/gtest.h>

#include <new>
#include <string>

#include "core/error.h"
#include "tinker/refusal.h"

namespace slime::tinker {
namespace {

TEST(Futures, AnIdBeginsWithItsSessionAndSaysWhichProcessGaveIt) {
  Futures futures(2);
  EXPECT_EQ(futures.open("session-1"), "session-1:req-2-1");
  EXPECT_EQ(futures.open("session-7"), "session-7:req-2-2");
}

TEST(Futures, WhoWaitsIsCalledOnceWhenTheAnswerIsThere) {
  Futures futures(1);
  const std::string id = futures.open("session-1");
  int num_calls = 0;
  futures.call_when_answered(id, [&] { ++num_calls; });
  EXPECT_EQ(futures.answer_of(id), nullptr);
  futures.answer(id, json::object{{"metrics", 1}});
  futures.answer(id, json::object{{"metrics", 2}});
  EXPECT_EQ(num_calls, 1);
  EXPECT_EQ(json_of(*futures.answer_of(id)).at("metrics"), 1);
  futures.call_when_answered(id, [&] { ++num_calls; });
  EXPECT_EQ(num_calls, 2) << "it is there: at once";
}

template <typename Error>
std::string category_of(const Error& error) {
  const Answer answer = outcome_of([&]() -> Answer { throw error; });
  EXPECT_TRUE(is_failure(answer));
  EXPECT_EQ(json_of(answer).at("error"), error.what());
  return std::string(json_of(answer).at("category").as_string());
}

TEST(OutcomeOf, TellsMistakesOfAClientFromFailuresOfTheServer) {
  EXPECT_EQ(category_of(ConfigError("no such loss")), "user");
  EXPECT_EQ(category_of(Refusal(404, "no such session")), "user");
  EXPECT_EQ(category_of(Refusal(503, "the disk is full")), "server");
  EXPECT_EQ(category_of(std::bad_alloc()), "server");
  const Answer answer = outcome_of([] { return json::object{{"metrics", 1}}; });
  EXPECT_EQ(json_of(answer).at("metrics"), 1);
  EXPECT_FALSE(is_failure(answer));
}

TEST(Futures, WhatWasDroppedIsNotCalled) {
  Futures futures(1);
  const std::string id = futures.open("session-1");
  futures.call_when_answered(id, [] { FAIL() << "its server has ended"; });
  futures.drop_calls();
  futures.fail(id, "the engine ends", Blame::kServer);
  EXPECT_EQ(json_of(*futures.answer_of(id)).at("category"), "server");
}

bool is_lost(const Futures& futures, const std::string& id) {
  try {
    (void)futures.answer_of(id);
  } catch (const UnknownFuture& unknown) {
    return unknown.is_lost();
  }
  ADD_FAILURE() << id << " is known";
  return false;
}

TEST(Futures, OfAnEarlierProcessAreLostUnlessTheyAreOpenedAgain) {
  Futures futures(3);
  futures.open_again("session-1:req-2-9");
  EXPECT_EQ(futures.answer_of("session-1:req-2-9"), nullptr);
  EXPECT_TRUE(is_lost(futures, "session-1:req-2-8"));
  EXPECT_FALSE(is_lost(futures, "session-1:req-3-8"));
  EXPECT_FALSE(is_lost(futures, "session-1:req-4-1")) << "of no process that there was";
  EXPECT_FALSE(is_lost(futures, "nonsense"));
}

TEST(Futures, TheNewestAnswersAreKeptAndLaterOnesOfTheOldestAreNoErrors) {
  Futures futures(1);
  const std::string first = futures.open("session-1");
  futures.answer(first, json::object{});
  for (std::size_t i = 0; i < Futures::kKeptAnswers; ++i)
    futures.answer(futures.open("session-1"), json::object{});
  EXPECT_FALSE(is_lost(futures, first));
  futures.answer(first, json::object{});
  EXPECT_THROW((void)futures.answer_of(first), UnknownFuture);
}

}  // namespace
}  // namespace slime::tinker
