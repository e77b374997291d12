/// A call never aborts what is not its own, whatever rids its client chose.

#include "engine/http/running_call.h"

#include <boost/asio/io_context.hpp>

#include "engine/http/test_server.h"

namespace slime::engine {
namespace {

GenerateRequest endless(const std::string& rid) {
  GenerateRequest request;
  request.rid = rid;
  request.input_ids = {65, 66};
  request.sampling.max_new_tokens = 1'000'000'000;
  return request;
}

/// The request of another client.
void run_other(FakeEngine& engine) {
  engine.submit(endless("r"), [](const GenerateUpdate&) {});
}

/// An aborted request is gone after the next step; a few are waited for.
bool other_goes_on(const FakeEngine& engine) {
  const int64_t steps = engine.load()->steps_done;
  EXPECT_TRUE(eventually([&] { return engine.load()->steps_done > steps + 3; }));
  return engine.load()->num_running == 1;
}

TEST(RunningCall, WithoutRoomForItsPromptAbortsNobody) {
  TestServer test("", {.response_limit_bytes = 1});
  run_other(test.engine);
  for (const char* stream : {"false", "true"}) {
    const std::string body =
        std::string(R"({"input_ids":[65,66],"rid":"r","stream":)") + stream + "}";
    EXPECT_EQ(test.call("POST", "/generate", body).status, 400);
    EXPECT_TRUE(other_goes_on(test.engine)) << stream;
  }
  EXPECT_EQ(test.engine.requests().size(), 1U);
}

TEST(RunningCall, OfARidThatIsRunningAbortsNobodyWhenItsRefusalHasNoRoom) {
  TestServer test("", {.response_limit_bytes = 20});  // the prompt's, and no update's
  run_other(test.engine);
  EXPECT_EQ(test.call("POST", "/generate", R"({"input_ids":[65,66],"rid":"r"})").status, 400);
  EXPECT_EQ(test.engine.requests().size(), 2U);
  EXPECT_TRUE(other_goes_on(test.engine));
}

/// What a call asks of an exchange: a strand, and to be told when the client goes away.
class Client final : public net::HttpExchange {
 public:
  void go_away() { on_disconnect_(); }

  boost::asio::any_io_executor executor() const override { return strand_.get_executor(); }
  net::Task<void> send(net::HttpResponse) override { co_return; }
  net::Task<void> begin_events(net::HttpHeaders) override { co_return; }
  net::Task<void> write_event(std::string, std::string) override { co_return; }
  net::Task<void> write_comment(std::string) override { co_return; }
  net::Task<void> end_events() override { co_return; }
  net::Task<void> begin_body(net::HttpResponse, std::optional<std::uint64_t>) override {
    co_return;
  }
  net::Task<void> write_body(std::string) override { co_return; }
  net::Task<void> end_body() override { co_return; }
  void on_disconnect(std::function<void()> callback) override {
    on_disconnect_ = std::move(callback);
  }
  bool is_connected() const override { return true; }

 private:
  mutable boost::asio::io_context strand_;
  std::function<void()> on_disconnect_;
};

TEST(RunningCall, OfARidThatIsRunningAbortsNobodyWhenItsClientGoesAway) {
  for (const bool engine_is_slow : {false, true}) {
    FakeEngine engine("");
    run_other(engine);
    ResponseMemory memory(1'000'000, 1'000'000);
    Client client;
    {
      // The client is gone before a slow engine has seen, and refused, what it sent.
      engine.set_is_reading(!engine_is_slow);
      const RunningCall refused(engine, client, memory, {}, {endless("r")});
      client.go_away();
      engine.set_is_reading(true);
      EXPECT_TRUE(other_goes_on(engine)) << engine_is_slow;
    }
    EXPECT_TRUE(other_goes_on(engine)) << engine_is_slow;
  }
}

TEST(RunningCall, AbortsItsOwnThatTheEngineHasNotReadYet) {
  FakeEngine engine("");
  ResponseMemory memory(1'000'000, 1'000'000);
  Client client;
  engine.set_is_reading(false);
  const RunningCall running(engine, client, memory, {}, {endless("r")});
  client.go_away();
  engine.set_is_reading(true);
  EXPECT_TRUE(eventually([&] { return engine.load()->num_running == 0; }));
}

TEST(RunningCall, AbortsItsOwnWhenItsClientGoesAway) {
  FakeEngine engine("");
  ResponseMemory memory(std::size_t{1} << 30, std::size_t{1} << 30);
  Client client;
  const RunningCall running(engine, client, memory, {}, {endless("r"), endless("s")});
  EXPECT_EQ(engine.load()->num_running, 2);
  client.go_away();
  EXPECT_TRUE(eventually([&] { return engine.load()->num_running == 0; }));
}

}  // namespace
}  // namespace slime::engine
