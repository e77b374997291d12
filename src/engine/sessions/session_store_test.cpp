#include "engine/sessions/session_store.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "engine/http/api_error.h"

namespace slime::engine {
namespace {

SessionTime now_of_test;
SessionTime test_now() { return now_of_test; }

int session_status(const std::function<void()>& act) {
  try {
    act();
  } catch (const ConfigError& error) {
    return ApiError::of(error).status();
  }
  return 200;
}

TEST(SessionStore, KeepsNoMoreSessionsThanItMay) {
  const ServedModel model;
  SessionStore store(model, {.max_sessions = 2});
  const auto first = store.open("a", {});
  store.open("b", {});
  EXPECT_EQ(session_status([&] { store.open("c", {}); }), 429);
  EXPECT_EQ(session_status([&] { store.open("a", {}); }), 409);
  store.remove(first);
  EXPECT_EQ(store.find("a"), nullptr);
  EXPECT_EQ(session_status([&] { store.open("c", {}); }), 200);
}

TEST(SessionStore, OfTwoEndsOfASessionTheSecondLeavesItsSuccessorAlone) {
  const ServedModel model;
  SessionStore store(model, {});
  const auto first = store.open("a", {});
  store.remove(first);
  const auto second = store.open("a", {});
  store.remove(first);
  EXPECT_EQ(store.find("a"), second);
  EXPECT_FALSE(second->is_closed());
}

TEST(SessionStore, KeepsNoMoreBytesThanItMay) {
  const ServedModel model;
  SessionStore store(model, {.max_bytes = 10'000});
  const auto session = store.open("a", {});
  SessionTurn turn;
  turn.context.resize(10'000);
  turn.output = {1};
  session->record(std::move(turn), {.messages = {}, .offer = {}, .also = {}}, std::nullopt);
  EXPECT_GT(store.num_bytes(), 40'000);
  EXPECT_EQ(session_status([&] { store.check_room(); }), 429);
  EXPECT_EQ(session_status([&] { store.open("b", {}); }), 429);
  EXPECT_EQ(store.find("b"), nullptr);
}

TEST(SessionStore, DropsWhatIsIdleWhenAnotherOneIsOpened) {
  const ServedModel model;
  now_of_test = std::chrono::steady_clock::now();
  SessionStore store(model, {.idle_time = std::chrono::seconds(60)}, test_now);
  const auto busy = store.open("busy", {});
  store.open("idle", {});
  ASSERT_TRUE(busy->enter());
  now_of_test += std::chrono::seconds(120);
  store.open("new", {});
  EXPECT_EQ(store.find("idle"), nullptr);
  EXPECT_NE(store.find("busy"), nullptr);
  EXPECT_EQ(store.num_dropped(), 1);
}

TEST(SessionStore, RefusesNamesThatAreNoPartOfAPath) {
  const ServedModel model;
  SessionStore store(model, {});
  for (const std::string& name : {std::string(), std::string("a/b"), std::string("a b"),
                                  std::string("\n"), std::string(257, 'a')})
    EXPECT_EQ(session_status([&] { store.open(name, {}); }), 400);
  EXPECT_EQ(session_status([&] { store.open("run-7.step:3@x_~+=", {}); }), 200);
}

TEST(Session, RefusesWhatComesOnceItIsClosed) {
  const ServedModel model;
  SessionStore store(model, {});
  const auto session = store.open("a", {});
  EXPECT_TRUE(session->enter());
  session->close();
  EXPECT_FALSE(session->enter());
  EXPECT_EQ(session->num_running(), 1);
}

}  // namespace
}  // namespace slime::engine
