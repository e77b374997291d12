/// Sessions that many threads open, ask in, look at and end at once. Mostly for the thread sanitizer.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "core/error.h"
#include "engine/sessions/session_store.h"

namespace slime::engine {
namespace {

const json::array kAsked{json::object{{"role", "user"}, {"content", "Q"}}};

/// A turn behind the one that is recognised; every third is taken back, as for a client that is gone.
void take_part(Session& session, int number) {
  if (!session.enter()) return;
  const TextKey offer = key_of("offer");
  json::array messages = kAsked;
  const json::object reply{{"role", "assistant"}, {"content", std::to_string(number % 5)}};
  messages.push_back(reply);
  messages.push_back(json::object{{"role", "user"}, {"content", "more"}});
  const auto known = session.find(messages, offer, true);
  SessionTurn turn{.output = {number}, .log_probs = {-0.5F}};
  turn.context = known ? known->tokens : std::vector<TokenId>{1, 2};
  turn.context.push_back(3);
  turn.message = reply;
  if (session.take_turn()) {
    const Session::Said said{.messages = known ? messages : kAsked, .offer = offer, .also = {}};
    const auto record =
        session.record(std::move(turn), said, known ? std::optional(known->found) : std::nullopt);
    session.set_refused_behind(record.turn);
    if (number % 3 == 0) session.forget(record);
  }
  session.leave(std::chrono::steady_clock::now());
}

TEST(SessionThreads, ManyAskInSessionsThatOthersOpenAndEnd) {
  const ServedModel model;
  SessionStore store(model, {.max_sessions = 3});
  std::atomic<int64_t> num_read{0};
  const auto work = [&](int first) {
    for (int i = first; i < first + 300; ++i) {
      const std::string name(1, static_cast<char>('a' + i % 4));
      try {
        store.open(name, {.max_turns = 40});
      } catch (const ConfigError&) {  // it is there, or there are too many
      }
      const auto session = store.find(name);
      if (session == nullptr) continue;
      take_part(*session, i);
      session->read_turns(
          [&](const SessionTurn& turn, bool) { num_read += turn.num_prompt_tokens() > 0; });
      static_cast<void>(store.all());
      if (i % 50 == 0) store.remove(session);
    }
  };
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work, i * 1000);
  threads.clear();
  EXPECT_GT(num_read, 0);
  for (const auto& session : store.all()) store.remove(session);
  EXPECT_EQ(store.num_bytes(), 0);
}

}  // namespace
}  // namespace slime::engine
