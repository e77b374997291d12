#include "reward/remote.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <future>
#include <latch>
#include <stop_token>
#include <thread>

#include "core/reward_number.h"
#include "net/http_server.h"

namespace slime::reward {
namespace {

using testing::HasSubstr;

/// A judge that refuses the first `refusals` calls and then answers with the response's length.
struct Judge {
  explicit Judge(int refusals) : left(refusals), server({.port = 0}, routes()) { server.start(); }

  std::vector<net::HttpRoute> routes() {
    std::vector<net::HttpRoute> all;
    all.emplace_back("POST", "/score", net::RouteClass::kInference,
                     net::answer_with([this](const net::HttpRequest& request) {
                       ++calls;
                       if (left-- > 0) return net::error_response(503, "busy");
                       const json::value asked = parse_json(request.body, "request");
                       const auto size = asked.at("response").as_string().size();
                       return net::HttpResponse{.body = json_text(json::object{{"score", size}})};
                     }));
    all.emplace_back(
        "POST", "/generate", net::RouteClass::kInference,
        net::answer_with([](const net::HttpRequest& request) {
          const json::value asked = parse_json(request.body, "request");
          json::array scores;
          for (const json::value& id : asked.at("input_ids").as_array())
            scores.push_back(json::array{-0.5 * id.to_number<double>(), id, nullptr});
          scores.front() = json::array{nullptr, 0, nullptr};
          const json::object meta{{"input_token_logprobs", scores}};
          return net::HttpResponse{.body = json_text(json::object{{"meta_info", meta}})};
        }));
    all.emplace_back("POST", "/odd", net::RouteClass::kInference,
                     net::answer_with([this](const net::HttpRequest&) {
                       ++calls;
                       return net::HttpResponse{.body = odd_answer};
                     }));
    return all;
  }

  RemoteReward at(const std::string& path) const {
    return {.url = server.url() + path,
            .num_attempts = 3,
            .timeout = std::chrono::seconds(5),
            .first_wait = std::chrono::milliseconds(1)};
  }

  std::string odd_answer;  // of /odd, set before it is asked
  std::atomic<int> left;
  std::atomic<int> calls{0};
  net::HttpServer server;
};

Sample three_tokens() {
  Sample sample;
  sample.prompt = "2+3";
  sample.response = "five";
  sample.label = "5";
  sample.tokens = {7, 8, 2, 4, 6};
  sample.prompt_length = 2;
  return sample;
}

TEST(RemoteReward, IsWhateverTheJudgeAnswers) {
  const Judge judge(0);
  EXPECT_EQ(ask_judge(judge.at("/score"), three_tokens()).value(), (json::object{{"score", 4}}));
}

TEST(RemoteReward, ARefusalIsTriedAgain) {
  const Judge judge(2);
  EXPECT_TRUE(ask_judge(judge.at("/score"), three_tokens()));
  EXPECT_EQ(judge.calls, 3);
}

TEST(RemoteReward, AfterTheLastAttemptTheSampleHasFailedAndSaysWhy) {
  const Judge judge(9);
  const auto answer = ask_judge(judge.at("/score"), three_tokens());
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().message, HasSubstr("no answer after 3 attempts"));
  EXPECT_THAT(answer.error().message, HasSubstr("status 503"));
  EXPECT_EQ(judge.calls, 3);
}

TEST(RemoteReward, AnOddAnswerIsAFailureThatNamesIt) {
  const struct {
    const char* answer;
    const char* key;
    const char* says;
  } cases[] = {{"null", "", "null is not a number"},
               {"\"x\"", "", "\"x\" is not a number"},
               {"1e400", "", "1e999 is not finite"},
               {"[1]", "", "[1] is not a number"},
               {"{\"acc\": 1}", "score", "{\"acc\":1} has no key \"score\""},
               {"{\"score\": null}", "score", "null is not a number"},
               {"", "", "no answer after 3 attempts"}};
  for (const auto& [answer, key, says] : cases) {
    Judge judge(0);
    judge.odd_answer = answer;
    const auto reward = ask_judge(judge.at("/odd"), three_tokens());
    const Expected<double> number =
        reward ? reward_number(*reward, key) : failure(reward.error().message);
    ASSERT_FALSE(number) << answer;
    EXPECT_THAT(number.error().message, HasSubstr(says));
  }
}

TEST(RemoteReward, AServerThatIsNotThereIsAFailure) {
  RemoteReward how{.url = "http://127.0.0.1:1/score", .num_attempts = 2};
  how.first_wait = std::chrono::milliseconds(1);
  EXPECT_THAT(ask_judge(how, three_tokens()).error().message, HasSubstr("cannot connect"));
}

TEST(RemoteReward, AFailureShowsNoSecretOfTheUrl) {
  Judge judge(99);
  judge.odd_answer = "{";
  const RemoteReward absent{.url = "http://127.0.0.1:1/score?api_key=hunter2",
                            .num_attempts = 1,
                            .first_wait = std::chrono::milliseconds(1)};
  const RemoteReward busy = judge.at("/score?api_key=hunter2");
  const RemoteReward odd = judge.at("/odd?api_key=hunter2");
  std::stop_source stopped;
  stopped.request_stop();
  const std::vector<std::pair<RemoteReward, std::stop_token>> cases{
      {absent, {}}, {busy, {}}, {odd, {}}, {busy, stopped.get_token()}};
  for (const auto& [how, stop] : cases) {
    for (const auto& answer :
         {ask_judge(how, three_tokens(), stop), ask_teacher(how, 1.0, three_tokens(), stop)}) {
      ASSERT_FALSE(answer);
      EXPECT_THAT(answer.error().message, HasSubstr("?api_key=***"));
      EXPECT_THAT(answer.error().message, testing::Not(HasSubstr("hunter2")));
    }
  }
}

TEST(RemoteReward, AStopClosesTheConnectionAndTriesNoMore) {
  std::promise<void> asked;
  std::latch may_answer(1);
  std::vector<net::HttpRoute> routes;
  routes.emplace_back("POST", "/score", net::RouteClass::kInference,
                      net::answer_with([&](const net::HttpRequest&) {
                        asked.set_value();  // throws when asked twice
                        may_answer.wait();
                        return net::HttpResponse{.body = "1"};
                      }));
  net::HttpServer server({.port = 0}, std::move(routes));
  server.start();
  const RemoteReward how{
      .url = server.url() + "/score", .num_attempts = 10, .timeout = std::chrono::seconds(100)};
  std::stop_source stop;
  auto answer = std::async(std::launch::async,
                           [&] { return ask_judge(how, three_tokens(), stop.get_token()); });
  asked.get_future().wait();
  stop.request_stop();
  EXPECT_EQ(answer.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_FALSE(answer.get());
  may_answer.count_down();
}

/// A judge that begins to answer at once and never ends: a byte every ten milliseconds.
class TricklingJudge {
 public:
  TricklingJudge() : thread_([this](const std::stop_token& stop) { answer(stop); }) {}

  RemoteReward with(std::chrono::milliseconds timeout) const {
    return {.url = fmt::format("http://127.0.0.1:{}/score", acceptor_.local_endpoint().port()),
            .num_attempts = 1,
            .timeout = timeout};
  }
  std::future<void> has_begun() { return begun_.get_future(); }

 private:
  void answer(const std::stop_token& stop) {
    boost::asio::ip::tcp::socket socket(context_);
    acceptor_.accept(socket);
    boost::system::error_code error;
    const std::string_view head = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
    boost::asio::write(socket, boost::asio::buffer(head), error);
    begun_.set_value();
    while (!stop.stop_requested() && !error) {
      boost::asio::write(socket, boost::asio::buffer("1", 1), error);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  boost::asio::io_context context_;
  boost::asio::ip::tcp::acceptor acceptor_{context_,
                                           {boost::asio::ip::make_address("127.0.0.1"), 0}};
  std::promise<void> begun_;
  std::jthread thread_;  // last: it ends before what it uses
};

TEST(RemoteReward, ATrickleOfBytesDoesNotMoveTheDeadlineOfACall) {
  const TricklingJudge judge;
  const auto begin = std::chrono::steady_clock::now();
  const auto answer = ask_judge(judge.with(std::chrono::milliseconds(300)), three_tokens());
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().message, HasSubstr("no complete answer"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(RemoteReward, AStopEndsACallWhoseAnswerTrickles) {
  TricklingJudge judge;
  std::stop_source stop;
  auto answer = std::async(std::launch::async, [&] {
    return ask_judge(judge.with(std::chrono::seconds(100)), three_tokens(), stop.get_token());
  });
  judge.has_begun().wait();
  stop.request_stop();
  EXPECT_EQ(answer.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_FALSE(answer.get());
}

TEST(RemoteReward, AStopEndsTheWaitBetweenAttempts) {
  const Judge judge(100);
  RemoteReward how = judge.at("/score");
  how.num_attempts = 10;
  how.first_wait = std::chrono::seconds(100);
  std::stop_source stop;
  auto answer = std::async(std::launch::async,
                           [&] { return ask_judge(how, three_tokens(), stop.get_token()); });
  while (judge.calls == 0) std::this_thread::yield();
  stop.request_stop();
  EXPECT_EQ(answer.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_THAT(answer.get().error().message, HasSubstr("nobody waits"));
  EXPECT_EQ(judge.calls, 1);
}

TEST(RemoteReward, ATeacherScoresTheResponseTokens) {
  const Judge judge(0);
  const auto scores = ask_teacher(judge.at("/generate"), 0.7, three_tokens());
  ASSERT_TRUE(scores) << scores.error().message;
  EXPECT_EQ(*scores, (json::object{{"teacher_log_probs", json::array{-1.0, -2.0, -3.0}}}));
}

}  // namespace
}  // namespace slime::reward
