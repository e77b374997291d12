#include "engine/remote/remote_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <future>

#include "engine/http/fake_engine.h"
#include "engine/remote/engine_server.h"

namespace slime::engine {
namespace {

using testing::HasSubstr;
using Cause = FinishReason::Cause;
using Kind = FinishReason::Kind;

std::array<int, 2> socket_pair() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  return ends;
}

/// A FakeEngine served over a connection.
struct Served {
  explicit Served(const std::string& text, EngineServerConfig server_config = {},
                  RemoteEngineConfig config = {}, TwoNetworks networks_in = {})
      : fake(text), ends(socket_pair()), networks(networks_in) {
    config.name = "engine 4";
    remote = std::make_unique<RemoteEngine>(ends[0], std::move(config));
    server = std::make_unique<EngineServer>(fake, ends[1], networks, server_config);
    thread = std::jthread([this] {
      try {
        server->serve();
      } catch (const net::FrameError& error) {
        wrong = error.what();
      }
    });
  }
  ~Served() { remote.reset(); }

  FakeEngine fake;
  std::array<int, 2> ends;
  TwoNetworks networks;
  std::string wrong;
  std::unique_ptr<RemoteEngine> remote;
  std::unique_ptr<EngineServer> server;
  std::jthread thread;
};

/// One request's updates, merged.
struct Response {
  EngineClient::OnUpdate sink() {
    return [this](GenerateUpdate update) {
      const std::lock_guard lock(mutex);
      EXPECT_FALSE(all.finish) << "an update after the last one";
      all.output_ids.insert(all.output_ids.end(), update.output_ids.begin(),
                            update.output_ids.end());
      all.output_log_probs.insert(all.output_log_probs.end(), update.output_log_probs.begin(),
                                  update.output_log_probs.end());
      all.rid = update.rid;
      all.finish = update.finish;
      changed.notify_all();
    };
  }
  GenerateUpdate wait(std::size_t num_tokens = SIZE_MAX) {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(20), [&] {
      return all.finish || all.output_ids.size() >= num_tokens;
    }));
    return all;
  }
  std::mutex mutex;
  std::condition_variable changed;
  GenerateUpdate all;
};

GenerateRequest request_of(const std::string& rid) {
  GenerateRequest request;
  request.rid = rid;
  request.input_ids = {1, 2, 3};
  request.return_logprob = true;
  request.sampling.max_new_tokens = 100'000;
  return request;
}

TEST(RemoteEngine, ARequestIsAnsweredAsByTheEngineItself) {
  Served served("hello");
  Response response, other;
  served.remote->submit(request_of("a"), response.sink());
  served.remote->submit(request_of(""), other.sink());
  const GenerateUpdate all = response.wait();
  EXPECT_EQ(all.output_ids, (std::vector<TokenId>{'h', 'e', 'l', 'l', 'o', kEndId}));
  EXPECT_EQ(all.output_log_probs, (std::vector<float>{-0.5, -1, -1.5, -2, -2.5, -3}));
  EXPECT_EQ(all.rid, "a");
  EXPECT_EQ(all.finish->kind, Kind::kStop);
  EXPECT_NE(other.wait().rid, "") << "it has got a name";
}

TEST(RemoteEngine, AbortsReachOneRequestThoseOfAPrefixAndAll) {
  Served served("");  // never ends
  std::array<Response, 4> responses;
  std::array<RequestHandle, 4> handles{};
  const std::array<std::string, 4> rids{"a-1", "a-2", "a-3", "b-1"};
  for (int i = 0; i < 4; ++i)
    handles[i] = served.remote->submit(request_of(rids[i]), responses[i].sink());
  for (Response& response : responses) response.wait(1);
  ASSERT_TRUE(served.remote->abort(handles[0]));
  EXPECT_EQ(responses[0].wait().finish->cause, Cause::kRequested);
  ASSERT_TRUE(served.remote->abort(handles[0])) << "who is not there is no error";
  ASSERT_TRUE(served.remote->abort_prefix("a-"));
  EXPECT_EQ(responses[1].wait().finish->cause, Cause::kRequested);
  EXPECT_EQ(responses[2].wait().finish->cause, Cause::kRequested);
  ASSERT_TRUE(served.remote->abort_all());
  EXPECT_EQ(responses[3].wait().finish->kind, Kind::kAbort);
}

TEST(RemoteEngine, ControlCallsHaveHappenedWhenTheyReturn) {
  Served served("");
  Response response;
  served.remote->submit(request_of("a"), response.sink());
  response.wait(3);
  ASSERT_TRUE(served.remote->pause(PauseMode::kInPlace));
  EXPECT_TRUE(served.fake.load()->is_paused);
  EXPECT_TRUE(served.remote->load()->is_paused);
  ASSERT_TRUE(served.remote->resume());
  EXPECT_FALSE(served.fake.load()->is_paused);
  const Expected<bool> flushed = served.remote->flush_cache();
  ASSERT_TRUE(flushed);
  EXPECT_EQ(*flushed, *served.fake.flush_cache());
  ASSERT_TRUE(served.remote->sleep());
  EXPECT_TRUE(served.fake.load()->is_paused);
  ASSERT_TRUE(served.remote->wake());
  ASSERT_TRUE(served.remote->pause(PauseMode::kAbort));
  EXPECT_EQ(response.wait().finish->cause, Cause::kRequested);
}

TEST(RemoteEngine, UpdatesOfTheWeightsAndTheirErrorsComeThrough) {
  Served served("hello");
  ASSERT_TRUE(served.remote->update_weights({.version = 5}));
  EXPECT_EQ(served.remote->weight_version(), 5);
  EXPECT_EQ(served.fake.weight_version(), 5);
  const auto refused =
      served.remote->update_weights({.version = 6, .source = FromDirectory{"/models/qwen2"}});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("engine 4: "));
  EXPECT_EQ(served.remote->weight_version(), 5);
}

TEST(RemoteEngine, WhereNothingIsExportedItSaysSoAndNobodyCanHaveWrittenWeights) {
  Served served("hello");
  served.remote.reset();
  served.thread.join();
  const std::array<int, 2> ends = socket_pair();
  EngineServer server(served.fake, ends[1], served.networks);
  std::jthread thread([&server] { server.serve(); });
  net::FrameChannel client(ends[0]);
  const auto ask = [&client](const ControlCall& call) {
    client.send(static_cast<uint32_t>(EngineFrame::kCall), to_frame(call), std::chrono::seconds(5));
    return control_answer_from(client.receive()->payload);
  };
  const ControlAnswer exported = ask({.number = 1, .kind = ControlCall::Kind::kExportWeights});
  EXPECT_TRUE(exported.handles.empty());
  EXPECT_FALSE(exported.error);
  const ControlAnswer written = ask({.number = 2,
                                     .kind = ControlCall::Kind::kUpdateWeights,
                                     .version = 7,
                                     .source = ControlCall::Source::kWritten});
  EXPECT_EQ(written.error, "nobody can have written the new weights");
  EXPECT_NE(served.fake.weight_version(), 7);
  client.shut_down();
}

TEST(RemoteEngine, ItsClientHearsWhatTheEngineDoes) {
  std::promise<Activity> told;
  Served served("hello", {},
                {.on_activity = [&told](Activity activity) { told.set_value(activity); }});
  served.server->tell_activity(Activity::kGenerates);
  std::future<Activity> heard = told.get_future();
  ASSERT_EQ(heard.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(heard.get(), Activity::kGenerates);
}

TEST(RemoteEngine, NewWeightsOfAnOlderEpochAreRefused) {
  std::atomic<int64_t> epoch{3};
  Served served("hello", {.epoch = 1}, {.epoch = [&epoch] { return epoch.load(); }});
  ASSERT_TRUE(served.remote->update_weights({.version = 5}));
  epoch = 2;
  const auto older = served.remote->update_weights({.version = 6});
  ASSERT_FALSE(older);
  EXPECT_THAT(older.error().message, HasSubstr("new weights of epoch 2 are refused: the engine has "
                                               "had some of epoch 3"));
  EXPECT_EQ(served.remote->weight_version(), 5);
  epoch = 3;
  EXPECT_TRUE(served.remote->update_weights({.version = 5}));
}

TEST(RemoteEngine, AClientSaysFirstWhoseItIs) {
  const auto refusal = [](std::string_view greeting) {
    return greeting == "ours" ? "" : std::string("it is somebody else's");
  };
  Served ours("hello", {.why_refused = refusal}, {.greeting = "ours"});
  EXPECT_TRUE(ours.remote->pause(PauseMode::kRetract));
  for (const char* greeting : {"theirs", ""}) {
    Served theirs("hello", {.why_refused = refusal}, {.greeting = greeting});
    EXPECT_FALSE(theirs.remote->pause(PauseMode::kRetract));
    theirs.thread.join();
    EXPECT_THAT(theirs.wrong, HasSubstr("the client is refused: it"));
  }
}

TEST(RemoteEngine, ALostConnectionEndsEachOpenRequestOnceAndAllCallsFail) {
  Served served("");
  std::array<Response, 3> responses;
  for (int i = 0; i < 3; ++i)
    served.remote->submit(request_of("r" + std::to_string(i)), responses[i].sink());
  for (Response& response : responses) response.wait(2);
  ::shutdown(served.ends[1], SHUT_RDWR);  // as when the process dies
  for (Response& response : responses) {
    const GenerateUpdate all = response.wait();
    EXPECT_EQ(all.finish->cause, Cause::kEngineLost);
    EXPECT_THAT(all.finish->message, HasSubstr("engine 4 is lost: "));
    EXPECT_GE(all.output_ids.size(), 2u) << "what was told stays told";
  }
  Response late;
  served.remote->submit(request_of("late"), late.sink());
  EXPECT_EQ(late.all.finish->cause, Cause::kEngineLost) << "at once";
  EXPECT_FALSE(served.remote->pause(PauseMode::kInPlace));
  EXPECT_FALSE(served.remote->load());
  EXPECT_FALSE(served.remote->update_weights({.version = 2}));
}

TEST(RemoteEngine, TheRequestsOfAClientThatGoesEndInTheEngine) {
  Served served("");
  Response response;
  served.remote->submit(request_of("a"), response.sink());
  response.wait(2);
  served.remote.reset();
  EXPECT_EQ(response.wait().finish->cause, Cause::kShuttingDown);
  served.thread.join();
  EXPECT_EQ(served.fake.load()->num_running, 0);
}

TEST(RemoteEngine, AnEngineThatDoesNotAnswerInTimeIsLost) {
  const std::array<int, 2> ends = socket_pair();  // nobody reads the other end
  RemoteEngine remote(ends[0], {.name = "engine 1", .answer_limit = std::chrono::milliseconds(20)});
  Response response;
  remote.submit(request_of("a"), response.sink());
  const auto paused = remote.pause(PauseMode::kInPlace);
  ASSERT_FALSE(paused);
  EXPECT_THAT(paused.error().message, HasSubstr("engine 1 is lost: no answer within 0.02 s"));
  EXPECT_EQ(response.wait().finish->cause, Cause::kEngineLost);
  ::close(ends[1]);
}

TEST(RemoteEngine, AStoppedEngineHoldsUpNobodyWhoSubmits) {
  const std::array<int, 2> ends = socket_pair();
  RemoteEngine remote(ends[0], {.outbox = {.limit_bytes = 5 << 20}});
  std::array<Response, 2> responses;
  GenerateRequest large = request_of("a");
  large.input_ids.assign(1 << 19, 1);  // 2 MiB: more than a socket takes
  remote.submit(large, responses[0].sink());
  remote.submit(large, responses[1].sink());
  remote.submit(large, [](const GenerateUpdate& update) {
    EXPECT_EQ(update.finish->cause, Cause::kQueueFull) << "a bound on what waits";
  });
  remote.disconnect("it has said nothing for 20 s");
  for (Response& response : responses) {
    EXPECT_THAT(response.wait().finish->message, HasSubstr("said nothing for 20 s"));
  }
  ::close(ends[1]);
}

TEST(RemoteEngine, CallsFromAnUpdateDoNotWait) {
  Served served("");
  std::promise<void> called;
  bool is_first = true;
  const RequestHandle request =
      served.remote->submit(request_of("a"), [&](const GenerateUpdate& update) {
        if (update.finish) return called.set_value();
        if (!std::exchange(is_first, false)) return;
        EXPECT_TRUE(served.remote->pause(PauseMode::kInPlace));
        EXPECT_FALSE(*served.remote->flush_cache());
        EXPECT_FALSE(served.remote->load());
        EXPECT_TRUE(served.remote->abort_prefix("a"));
      });
  static_cast<void>(request);
  EXPECT_EQ(called.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

TEST(RemoteEngine, WhatIsNoFrameEndsTheConnectionOnEitherSide) {
  Served served("");
  Response response;
  served.remote->submit(request_of("a"), response.sink());
  response.wait(1);
  ASSERT_EQ(::write(served.ends[0], "GET / HTTP/1.1\r\n\r\n", 18), 18);
  EXPECT_EQ(response.wait().finish->cause, Cause::kEngineLost);
  served.thread.join();
  EXPECT_THAT(served.wrong, HasSubstr("no frame"));
  EXPECT_EQ(served.fake.load()->num_running, 0);

  const std::array<int, 2> ends = socket_pair();
  RemoteEngine remote(ends[0], {});
  Response other;
  remote.submit(request_of("a"), other.sink());
  ASSERT_EQ(::write(ends[1], "HTTP/1.1 200 OK\r\n\r\n", 19), 19);
  EXPECT_THAT(other.wait().finish->message, HasSubstr("no frame"));
  ::close(ends[1]);
}

TEST(RemoteEngine, AServerRefusesMoreRequestsThanItIsToHold) {
  Response first, second;  // the first stays open until its client goes
  Served served("", {.max_open_requests = 1});
  served.remote->submit(request_of("a"), first.sink());
  served.remote->submit(request_of("b"), second.sink());
  EXPECT_EQ(second.wait().finish->cause, Cause::kQueueFull);
  EXPECT_FALSE(first.wait(1).finish);
}

}  // namespace
}  // namespace slime::engine
