#include "gateway/gateway.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "gateway/raw_client_for_tests.h"
#include "gateway/scripted_worker.h"
#include "net/tcp.h"

namespace slime::gateway {
namespace {

using Does = ScriptedWorker::Does;
using std::chrono::milliseconds;
using testing::HasSubstr;

TEST(Gateway, PassesRequestAndAnswerOnWithoutWhatBelongsToAHop) {
  Gated gated(1);
  const auto answer = gated.call("POST", "/v1/completions?a=%2F&b=1", "{\"x\":1}",
                                 {{"X-Request-Id", "r-7"}, {"Authorization", "Bearer client"}});
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "\"a\"");
  EXPECT_EQ(net::find_header(answer.headers, "X-Name"), "a");
  EXPECT_FALSE(net::find_header(answer.headers, "X-Hop"));
  const auto seen = gated.workers[0].seen("/v1/completions");
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].target, "/v1/completions?a=%2F&b=1");
  EXPECT_EQ(seen[0].body, "{\"x\":1}");
  EXPECT_EQ(seen[0].header("X-Request-Id"), "r-7");
  EXPECT_EQ(seen[0].header("Authorization"), "Bearer client");
  EXPECT_EQ("http://" + std::string(*seen[0].header("Host")), gated.workers[0].url());
}

TEST(Gateway, LeavesOutWhatAClientSaysOfItsConnection) {
  Gated gated(1);
  RawClient client(
      gated.gateway.url(),
      "GET /any HTTP/1.1\r\nHost: localhost\r\nConnection: close, X-Mine\r\nX-Mine: 1\r\n"
      "TE: trailers\r\nOrigin: http://localhost\r\nX-Yours: 2\r\n\r\n");
  EXPECT_THAT(client.read_until("\"a\""), HasSubstr("200 OK"));
  const auto seen = gated.workers[0].seen("/any");
  ASSERT_EQ(seen.size(), 1U);
  for (const char* name : {"X-Mine", "TE", "Origin", "Connection"})
    EXPECT_FALSE(seen[0].header(name)) << name;
  EXPECT_EQ(seen[0].header("X-Yours"), "2");
}

TEST(Gateway, NamesARequestThatHasNoNameAndTellsIt) {
  Gated gated(1);
  const auto answer = gated.generate();
  const auto id = net::find_header(answer.headers, "x-request-id");
  ASSERT_TRUE(id);
  EXPECT_EQ(gated.workers[0].seen("/generate")[0].header("x-request-id"), *id);
}

TEST(Gateway, AnotherWorkerAnswersForOneThatFails) {
  for (const int status : {429, 500, 502, 503, 504}) {
    Gated gated(2, with_policy(PolicyKind::kRoundRobin));
    gated.workers[0].status = status;
    for (int i = 0; i < 4; ++i) EXPECT_EQ(gated.generate().body, "\"b\"") << status;
    EXPECT_GT(gated.workers[0].num_requests, 0) << status;
  }
}

TEST(Gateway, WhatAClientDidWrongIsAnsweredByOneWorkerAndTripsNoBreaker) {
  GatewayConfig config = with_policy(PolicyKind::kRoundRobin);
  config.workers.breaker.failures_to_open = 2;
  Gated gated(2, config);
  for (ScriptedWorker& worker : gated.workers) worker.status = 400;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(gated.generate().status, 400);
  EXPECT_EQ(gated.workers[0].num_requests + gated.workers[1].num_requests, 10);
  for (const Workers::View& view : gated.gateway.workers().list())
    EXPECT_EQ(view.breaker, CircuitBreaker::State::kClosed);
}

TEST(Gateway, TheLastAnswerIsTheClientsWhenAllWorkersFail) {
  Gated gated(2);
  for (ScriptedWorker& worker : gated.workers) worker.status = 503;
  const auto answer = gated.generate();
  EXPECT_EQ(answer.status, 503);
  EXPECT_TRUE(net::find_header(answer.headers, "Retry-After"));
  EXPECT_EQ(gated.workers[0].num_requests + gated.workers[1].num_requests, 2);
}

/// Opens after three failures in a row, for so long.
GatewayConfig with_breaker(milliseconds open_time) {
  GatewayConfig config = with_policy(PolicyKind::kRoundRobin);
  config.workers.breaker = {.failures_to_open = 3, .successes_to_close = 1, .open_time = open_time};
  return config;
}

TEST(Gateway, AWorkerThatFailsTooOftenGetsNothing) {
  Gated gated(2, with_breaker(std::chrono::hours(1)));
  gated.workers[0].status = 500;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(gated.generate().status, 200);
  EXPECT_EQ(gated.workers[0].num_requests, 3);
  EXPECT_TRUE(gated.said("fails too often"));
}

TEST(Gateway, AWorkerWhoseTrialSucceedsGetsRequestsAgain) {
  Gated gated(2, with_breaker(milliseconds(50)));
  gated.workers[0].status = 500;
  EXPECT_TRUE(eventually([&] {
    EXPECT_EQ(gated.generate().status, 200);
    return gated.said("fails too often");
  }));
  gated.workers[0].status = 200;
  EXPECT_TRUE(eventually([&] {
    EXPECT_EQ(gated.generate().status, 200);
    return gated.said("answers again");
  }));
}

TEST(Gateway, ARequestWhoseWorkerIsGoneGoesToAnother) {
  Gated gated(2, with_policy(PolicyKind::kRoundRobin));
  gated.workers.pop_front();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(gated.generate().body, "\"b\"");
  EXPECT_TRUE(eventually([&] { return !gated.gateway.workers().list()[0].is_healthy; }));
  EXPECT_TRUE(gated.said("gets nothing until it is healthy again"));
}

TEST(Gateway, AnAnswerThatIsLostIsAskedForAgainButNotFromEverybody) {
  Gated gated(3);
  gated.workers[0].does = Does::kCutBeforeAnswer;
  gated.workers[1].does = Does::kCutBeforeAnswer;
  gated.workers[2].does = Does::kCutBeforeAnswer;
  const auto answer = gated.generate();
  EXPECT_EQ(answer.status, 502);
  int total = 0;
  for (const ScriptedWorker& worker : gated.workers) total += worker.num_requests;
  EXPECT_EQ(total, 2);  // a request that ends its worker ends two, not all
}

TEST(Gateway, WhatCannotBeRepeatedIsSentOnce) {
  Gated gated(2, with_policy(PolicyKind::kRoundRobin));
  for (ScriptedWorker& worker : gated.workers) worker.status = 500;
  EXPECT_EQ(gated.call("POST", "/open_session", "{}").status, 500);
  EXPECT_EQ(gated.workers[0].num_requests + gated.workers[1].num_requests, 1);
  for (ScriptedWorker& worker : gated.workers) worker.does = Does::kCutBeforeAnswer;
  EXPECT_EQ(gated.call("POST", "/open_session", "{}").status, 502);
  EXPECT_EQ(gated.workers[0].num_requests + gated.workers[1].num_requests, 2);
}

TEST(Gateway, AStreamComesAsItIsMade) {
  Gated gated(1);
  gated.workers[0].does = Does::kStream;
  gated.workers[0].ends_streams = false;
  RawClient client(gated.gateway.url(), raw_post("/generate", "{}"));
  EXPECT_THAT(client.read_until("data: 2"), HasSubstr("data: 0\n\n"));
}

TEST(Gateway, AStreamThatAWorkerCutsIsPassedOnUpToTheCutAndHasNoEnd) {
  GatewayConfig config;
  config.workers.breaker.is_on = false;
  Gated gated(2, config);
  for (ScriptedWorker& worker : gated.workers) worker.does = Does::kCutInStream;
  constexpr int kStreams = 40;
  for (int i = 1; i <= kStreams; ++i) {
    RawClient client(gated.gateway.url(), raw_post("/v1/completions", "{}"));
    const std::string text = client.read_to_end();
    EXPECT_TRUE(text.ends_with("\r\n9\r\ndata: 0\n\n\r\n9\r\ndata: 1\n\n\r\n")) << text;
    EXPECT_EQ(gated.workers[0].num_requests + gated.workers[1].num_requests, i);
  }
  EXPECT_THAT(gated.call("GET", "/metrics").body, HasSubstr("cut_responses_total 40"));
}

TEST(Gateway, AClientThatLeavesTakesItsRequestAlong) {
  Gated gated(1);
  ScriptedWorker& worker = gated.workers[0];
  worker.ends_streams = false;
  for (const Does does : {Does::kStream, Does::kHang}) {
    worker.does = does;
    const int before = worker.num_cancelled, begun = worker.num_requests;
    RawClient client(gated.gateway.url(), raw_post("/generate", "{}"));
    if (does == Does::kStream) client.read_until("data: 2");
    EXPECT_TRUE(eventually([&] { return worker.num_requests > begun; }));
    client.hang_up();
    EXPECT_TRUE(eventually([&] { return worker.num_cancelled > before; }));
    EXPECT_TRUE(eventually([&] { return gated.gateway.workers().list()[0].load == 0; }));
  }
  EXPECT_EQ(gated.gateway.workers().list()[0].num_failures, 0);
}

TEST(Gateway, AClientThatDoesNotReadHoldsItsWorkerBack) {
  Gated gated(1);
  ScriptedWorker& worker = gated.workers[0];
  worker.does = Does::kStream;
  worker.ends_streams = false;
  RawClient client(gated.gateway.url(), raw_post("/generate", "{}"));
  EXPECT_TRUE(eventually([&] { return worker.num_written > 3; }));
  int last = -1;
  EXPECT_TRUE(eventually([&] {
    const int now = worker.num_written;
    std::this_thread::sleep_for(milliseconds(200));
    return std::exchange(last, now) == worker.num_written;
  }));
  EXPECT_LT(worker.num_written, 1000);  // 64 MiB: sockets hold less
}

TEST(Gateway, AWorkerThatNeverAnswersIsGivenUpInTime) {
  GatewayConfig config;
  config.proxy.request_timeout = milliseconds(200);
  Gated gated(2, config);
  for (ScriptedWorker& worker : gated.workers) worker.does = Does::kHang;
  EXPECT_EQ(gated.generate().status, 504);
  EXPECT_TRUE(eventually(
      [&] { return gated.workers[0].num_cancelled + gated.workers[1].num_cancelled == 1; }));
}

TEST(Gateway, ASocketThatAcceptsAndSaysNothingIsNoWorker) {
  Gated gated(1);
  const int silent = net::listen_on("127.0.0.1", 0);
  GatewayConfig config = Gated::fill({});
  config.workers.health.timeout = milliseconds(100);
  Gateway gateway(config, nullptr);
  const auto url = "http://127.0.0.1:" + std::to_string(net::port_of(silent));
  ASSERT_TRUE(gateway.workers().add(*parse_worker_url(url)));
  ASSERT_TRUE(gateway.workers().add(*parse_worker_url(gated.workers[0].url())));
  gateway.start();
  EXPECT_TRUE(eventually([&] {
    const auto views = gateway.workers().list();
    return views[1].is_healthy && !views[0].why_unhealthy.empty();
  }));
  EXPECT_FALSE(gateway.workers().list()[0].is_healthy);
  const auto answer =
      net::http_call({.method = "POST", .url = gateway.url() + "/generate", .body = "{}"});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body, "\"a\"");
  ::close(silent);
}

TEST(Gateway, AWorkerThatDrainsFinishesWhatItHasAndGetsNothingNew) {
  Gated gated(2, with_policy(PolicyKind::kRoundRobin));
  gated.workers[0].does = Does::kHang;
  auto running = std::async(std::launch::async, [&] { return gated.generate(); });
  EXPECT_TRUE(eventually([&] { return gated.workers[0].num_requests == 1; }));
  EXPECT_EQ(gated.call("DELETE", "/workers/w1").status, 202);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(gated.generate().body, "\"b\"");
  EXPECT_TRUE(gated.gateway.workers().list()[0].is_draining);
  gated.workers[0].does = Does::kAnswer;
  EXPECT_EQ(running.get().body, "\"a\"");
  EXPECT_TRUE(eventually([&] { return gated.gateway.workers().list().size() == 1; }));
  EXPECT_EQ(gated.workers[0].num_requests, 1);
}

TEST(Gateway, BeyondTheLimitRequestsWaitAndThenAreRefused) {
  GatewayConfig config;
  config.proxy.admission = {
      .max_running = 1, .max_waiting = 1, .max_wait = std::chrono::seconds(20)};
  Gated gated(1, config);
  gated.workers[0].does = Does::kHang;
  auto first = std::async(std::launch::async, [&] { return gated.generate(); });
  EXPECT_TRUE(eventually([&] { return gated.workers[0].num_requests == 1; }));
  auto second = std::async(std::launch::async, [&] { return gated.generate(); });
  const auto waits = [&] {
    return gated.call("GET", "/metrics").body.find("queued_requests 1") != std::string::npos;
  };
  EXPECT_TRUE(eventually(waits));
  const auto third = gated.generate();
  EXPECT_EQ(third.status, 429);
  EXPECT_TRUE(net::find_header(third.headers, "Retry-After"));
  gated.workers[0].does = Does::kAnswer;
  EXPECT_EQ(first.get().status, 200);
  EXPECT_EQ(second.get().status, 200);
  EXPECT_EQ(gated.workers[0].num_requests, 2);
}

}  // namespace
}  // namespace slime::gateway
