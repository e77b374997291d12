#include "net/http_server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <future>

#include "core/error.h"
#include "net/http_client.h"

namespace slime::net {
namespace {

namespace asio = boost::asio;

/// Waits until `gone` is set by the disconnect callback, for at most ten seconds.
Task<void> wait_for_disconnect(HttpExchange& exchange, std::promise<void>& gone) {
  auto timer = std::make_shared<asio::steady_timer>(exchange.executor(), std::chrono::seconds(10));
  exchange.on_disconnect([&gone, timer] {
    gone.set_value();
    timer->cancel();
  });
  boost::system::error_code ignored;
  try {
    co_await timer->async_wait(asio::use_awaitable);
  } catch (const boost::system::system_error&) {  // cancelled
  }
}

Task<void> count_to_three(HttpExchange& exchange) {
  co_await exchange.begin_events();
  for (int i = 1; i <= 3; ++i) {
    std::string data = std::to_string(i);
    co_await exchange.write_event(std::move(data));
  }
  co_await exchange.end_events();
}

Task<void> name_an_event(HttpExchange& exchange) {
  HttpHeaders headers{{"X-Request-Id", "r-1"}};
  co_await exchange.begin_events(std::move(headers));
  std::string comment = "ping", data = "{}", name = "message_stop";
  co_await exchange.write_comment(std::move(comment));
  co_await exchange.write_event(std::move(data), std::move(name));
  co_await exchange.end_events();
}

Task<void> break_down(HttpExchange& exchange) {
  (void)exchange;
  throw std::runtime_error("a secret path");
  co_return;
}

struct TestServer {
  explicit TestServer(HttpServerConfig config = {}) : server(fill(std::move(config)), routes()) {
    server.start();
  }

  static HttpServerConfig fill(HttpServerConfig config) {
    config.port = 0;
    return config;
  }

  std::vector<HttpRoute> routes() {
    std::vector<HttpRoute> routes;
    routes.emplace_back("POST", "/echo", RouteClass::kInference,
                        answer_with([](const HttpRequest& request) {
                          return HttpResponse{.body = request.body, .content_type = "text/plain"};
                        }));
    routes.emplace_back("GET", "/query", RouteClass::kProbe,
                        answer_with([](const HttpRequest& request) {
                          return HttpResponse{.body = request.query_value("name").value_or("none")};
                        }));
    routes.emplace_back("GET", "/models/*", RouteClass::kProbe,
                        answer_with([](const HttpRequest& request) {
                          return HttpResponse{.body = "one of " + request.path};
                        }));
    routes.emplace_back(
        "GET", "/models/all", RouteClass::kProbe,
        answer_with([](const HttpRequest&) { return HttpResponse{.body = "all"}; }));
    routes.emplace_back("GET", "/named", RouteClass::kProbe,
                        [](HttpExchange& e) { return name_an_event(e); });
    routes.emplace_back("POST", "/control", RouteClass::kControl,
                        answer_with([](const HttpRequest&) { return HttpResponse{}; }));
    routes.emplace_back("POST", "/weights", RouteClass::kWeights,
                        answer_with([](const HttpRequest&) { return HttpResponse{}; }));
    routes.emplace_back("GET", "/bad", RouteClass::kProbe,
                        answer_with([](const HttpRequest&) -> HttpResponse {
                          throw ConfigError("top_p must be in (0, 1]");
                        }));
    routes.emplace_back("GET", "/broken", RouteClass::kProbe,
                        [](HttpExchange& e) { return break_down(e); });
    routes.emplace_back("GET", "/events", RouteClass::kProbe,
                        [](HttpExchange& e) { return count_to_three(e); });
    routes.emplace_back("GET", "/wait", RouteClass::kProbe, [this](HttpExchange& e) {
      ++num_waiting;
      return wait_for_disconnect(e, gone);
    });
    return routes;
  }

  HttpResponse call(std::string method, std::string path, std::string body = "",
                    HttpHeaders headers = {}) {
    auto response = http_call({.method = std::move(method),
                               .url = server.url() + path,
                               .body = std::move(body),
                               .headers = std::move(headers)});
    EXPECT_TRUE(response) << response.error().message;
    return response.value_or(HttpResponse{.status = 0});
  }

  /// Sends bytes as they are and reads until the server closes.
  std::string raw(std::string_view bytes) {
    asio::io_context context;
    asio::ip::tcp::socket socket(context);
    socket.connect({asio::ip::make_address("127.0.0.1"), server.port()});
    asio::write(socket, asio::buffer(bytes));
    std::string answer;
    boost::system::error_code error;
    asio::read(socket, asio::dynamic_buffer(answer), error);
    return answer;
  }

  std::atomic<int> num_waiting{0};
  std::promise<void> gone;
  HttpServer server;
};

TEST(HttpServer, AnswersARequestWithItsBody) {
  TestServer test;
  const HttpResponse response = test.call("POST", "/echo", "hello");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "hello");
  EXPECT_EQ(response.content_type, "text/plain");
}

TEST(HttpServer, KeepsAConnectionForPipelinedRequests) {
  TestServer test;
  const std::string answer = test.raw(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\none"
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
      "chunked\r\n\r\n2\r\ntw\r\n1;x=y\r\no\r\n0\r\nA: b\r\n\r\n"
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nConnection: close\r\n\r\nthree");
  const std::size_t one = answer.find("one"), two = answer.find("two"),
                    three = answer.find("three");
  EXPECT_LT(one, two);
  EXPECT_LT(two, three);
  EXPECT_NE(three, std::string::npos) << answer;
}

TEST(HttpServer, RefusesUnknownPathsAndWrongMethods) {
  TestServer test;
  EXPECT_EQ(test.call("GET", "/nowhere").status, 404);
  const HttpResponse wrong = test.call("GET", "/echo");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(find_header(wrong.headers, "allow"), "POST");
}

TEST(HttpServer, ARouteWithAStarTakesWhatGoesOnAndExactOnesWin) {
  TestServer test;
  EXPECT_EQ(test.call("GET", "/models/org%2Fname").body, "one of /models/org/name");
  EXPECT_EQ(test.call("GET", "/models/all").body, "all");
  EXPECT_EQ(test.call("GET", "/models/").status, 404);
  EXPECT_EQ(test.call("POST", "/models/x").status, 405);
}

TEST(HttpServer, StreamsNamedEventsCommentsAndHeaders) {
  TestServer test;
  const HttpResponse response = test.call("GET", "/named");
  EXPECT_EQ(response.body, ": ping\n\nevent: message_stop\ndata: {}\n\n");
  EXPECT_EQ(find_header(response.headers, "x-request-id"), "r-1");
}

TEST(HttpServer, AnswersHeadWithoutABody) {
  TestServer test;
  const std::string answer =
      test.raw("HEAD /query?name=ab HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_NE(answer.find("Content-Length: 2\r\n"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\n"));
}

TEST(HttpServer, DecodesTheQuery) {
  TestServer test;
  EXPECT_EQ(test.call("GET", "/query?a=1&name=x%20y+z").body, "x y z");
}

TEST(HttpServer, TurnsAConfigErrorIntoA400AndHidesOtherExceptions) {
  TestServer test;
  const HttpResponse bad = test.call("GET", "/bad");
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(bad.body, R"({"error":{"message":"top_p must be in (0, 1]"}})");
  const HttpResponse broken = test.call("GET", "/broken");
  EXPECT_EQ(broken.status, 500);
  EXPECT_EQ(broken.body.find("secret"), std::string::npos);
}

TEST(HttpServer, StreamsEventsInChunks) {
  TestServer test;
  const HttpResponse response = test.call("GET", "/events");
  EXPECT_EQ(response.content_type, "text/event-stream");
  EXPECT_EQ(response.body, "data: 1\n\ndata: 2\n\ndata: 3\n\n");
}

TEST(HttpServer, StreamsEventsToOldClientsWithoutChunks) {
  TestServer test;
  const std::string answer = test.raw("GET /events HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(answer.ends_with("\r\n\r\ndata: 1\n\ndata: 2\n\ndata: 3\n\n")) << answer;
}

TEST(HttpServer, TellsAHandlerThatItsClientWentAway) {
  TestServer test;
  {
    asio::io_context context;
    asio::ip::tcp::socket socket(context);
    socket.connect({asio::ip::make_address("127.0.0.1"), test.server.port()});
    asio::write(socket, asio::buffer(std::string_view("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")));
  }
  EXPECT_EQ(test.gone.get_future().wait_for(std::chrono::seconds(5)), std::future_status::ready);
}

TEST(HttpServer, SeesThatAClientWentAwayBehindBytesOfItsNextRequest) {
  TestServer test;
  {
    asio::io_context context;
    asio::ip::tcp::socket socket(context);
    socket.connect({asio::ip::make_address("127.0.0.1"), test.server.port()});
    asio::write(socket, asio::buffer(std::string_view("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")));
    while (test.num_waiting == 0) std::this_thread::yield();
    asio::write(socket, asio::buffer(std::string_view("G")));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(test.gone.get_future().wait_for(std::chrono::seconds(5)), std::future_status::ready);
}

TEST(HttpServer, StopsWhileAHandlerWaits) {
  TestServer test;
  asio::io_context context;
  asio::ip::tcp::socket socket(context);
  socket.connect({asio::ip::make_address("127.0.0.1"), test.server.port()});
  asio::write(socket, asio::buffer(std::string_view("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")));
  while (test.server.num_connections() == 0) std::this_thread::yield();
  test.server.stop(std::chrono::milliseconds(0));
  EXPECT_EQ(test.server.num_connections(), 0);
}

TEST(HttpServer, AsksForTheKey) {
  TestServer test({.access = {.api_key = "abc", .admin_api_key = "root"}});
  EXPECT_EQ(test.call("POST", "/echo", "x").status, 401);
  EXPECT_EQ(test.call("POST", "/echo", "x", {{"Authorization", "Bearer abd"}}).status, 401);
  EXPECT_EQ(test.call("POST", "/echo", "x", {{"Authorization", "Bearer abc"}}).status, 200);
  EXPECT_EQ(test.call("POST", "/control", "", {{"Authorization", "Bearer abc"}}).status, 401);
  EXPECT_EQ(test.call("POST", "/control", "", {{"Authorization", "Bearer root"}}).status, 200);
  EXPECT_EQ(test.call("GET", "/query").status, 200);
}

TEST(HttpServer, WeightsAreChangedWithTheAdminKeyOrWhereThereIsNoKeyAtAll) {
  const HttpHeaders inference{{"Authorization", "Bearer abc"}},
      admin{{"Authorization", "Bearer root"}};
  TestServer both({.access = {.api_key = "abc", .admin_api_key = "root"}});
  EXPECT_EQ(both.call("POST", "/weights").status, 401);
  EXPECT_EQ(both.call("POST", "/weights", "", inference).status, 401);
  EXPECT_EQ(both.call("POST", "/weights", "", admin).status, 200);
  TestServer one({.access = {.api_key = "abc"}});
  for (const HttpHeaders& headers : {HttpHeaders{}, inference, admin}) {
    const HttpResponse refused = one.call("POST", "/weights", "", headers);
    EXPECT_EQ(refused.status, 403);
    EXPECT_NE(refused.body.find("--admin-api-key-file"), std::string::npos);
  }
  EXPECT_EQ(one.call("POST", "/control", "", inference).status, 200);
  TestServer none;
  EXPECT_EQ(none.call("POST", "/weights").status, 200);
}

TEST(HttpServer, ServesItsOwnUser) {  // others: peer_user_test.cpp
  TestServer test({.serves_own_user_only = true});
  EXPECT_EQ(test.call("POST", "/echo", "x").body, "x");
}

TEST(HttpServer, IgnoresAKeyWhenItHasNone) {
  TestServer test;
  EXPECT_EQ(test.call("POST", "/control", "", {{"Authorization", "Bearer None"}}).status, 200);
}

TEST(HttpServer, RefusesPagesOfOtherHosts) {
  TestServer test;
  EXPECT_EQ(test.call("POST", "/echo", "x", {{"Origin", "http://evil.example"}}).status, 403);
  EXPECT_EQ(test.call("POST", "/echo", "x", {{"Origin", "http://localhost:8080"}}).status, 200);
  EXPECT_TRUE(test.raw("GET /query HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
                  .starts_with("HTTP/1.1 403"));
}

constexpr std::string_view kPreflight =
    "OPTIONS /echo HTTP/1.1\r\nHost: x\r\nOrigin: {}\r\nAccess-Control-Request-Method: POST\r\n"
    "Access-Control-Request-Headers: authorization,content-type\r\nConnection: close\r\n\r\n";

TEST(HttpServer, AnswersAPreflightOfAPageOfThisMachineWithoutAKey) {
  TestServer test({.access = {.api_key = "key"}});
  const std::string answer = test.raw(fmt::format(kPreflight, "http://localhost:3000"));
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << answer;
  for (const char* header : {"Access-Control-Allow-Origin: http://localhost:3000\r\n",
                             "Access-Control-Allow-Methods: POST\r\n",
                             "Access-Control-Allow-Headers: authorization,content-type\r\n"})
    EXPECT_NE(answer.find(header), std::string::npos) << header << answer;
  EXPECT_EQ(test.call("POST", "/echo", "x", {{"Origin", "http://localhost:3000"}}).status, 401)
      << "what the page asks for needs the key";
}

TEST(HttpServer, LetsAPageOfThisMachineReadItsAnswersAndNoOther) {
  TestServer test;
  const auto allowed = [&](const char* origin) {
    const HttpResponse response = test.call("POST", "/echo", "x", {{"Origin", origin}});
    return find_header(response.headers, "Access-Control-Allow-Origin").has_value();
  };
  EXPECT_TRUE(allowed("http://127.0.0.1:8080"));
  EXPECT_FALSE(allowed("http://evil.example"));
  const std::string foreign = test.raw(fmt::format(kPreflight, "http://evil.example"));
  EXPECT_TRUE(foreign.starts_with("HTTP/1.1 403")) << foreign;
  EXPECT_EQ(foreign.find("Access-Control"), std::string::npos);
  const std::string odd = test.raw(
      "OPTIONS /echo HTTP/1.1\r\nHost: x\r\nOrigin: http://localhost\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(odd.starts_with("HTTP/1.1 405")) << "no preflight: " << odd;
}

TEST(HttpServer, WantsAKeyBeforeItListensToOtherMachines) {
  EXPECT_THROW(HttpServer({.host = "0.0.0.0", .port = 0}, {}), ConfigError);
  EXPECT_THROW(HttpServer({.host = "no address", .port = 0}, {}), ConfigError);
}

TEST(HttpServer, SaysThatAPortIsTaken) {
  TestServer test;
  EXPECT_THROW(HttpServer({.port = test.server.port()}, {}), ConfigError);
}

TEST(HttpServer, RefusesWhatIsTooLarge) {
  TestServer test({.head_limit_bytes = 1000, .body_limit_bytes = 100});
  EXPECT_TRUE(test.raw("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n")
                  .starts_with("HTTP/1.1 413"));
  EXPECT_TRUE(test.raw("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n")
                  .starts_with("HTTP/1.1 413"));
  EXPECT_TRUE(
      test.raw("GET /query HTTP/1.1\r\nHost: x\r\nA: " + std::string(1000, 'a') + "\r\n\r\n")
          .starts_with("HTTP/1.1 431"));
}

/// Connections that sent the same bytes and stay open.
struct OpenClients {
  OpenClients(const HttpServer& server, int count, std::string_view bytes) {
    for (int i = 0; i < count; ++i) {
      sockets.emplace_back(context);
      sockets.back().connect({asio::ip::make_address("127.0.0.1"), server.port()});
      asio::write(sockets.back(), asio::buffer(bytes));
    }
    while (server.num_connections() < count) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until the bytes are read
  }
  asio::io_context context;
  std::vector<asio::ip::tcp::socket> sockets;
};

TEST(HttpServer, AnnouncedBodiesTakeNoRoomUntilTheyArrive) {
  TestServer test({.body_limit_bytes = 100, .all_bodies_limit_bytes = 400});
  const OpenClients chunked(test.server, 8,
                            "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  const OpenClients sized(test.server, 8,
                          "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n");
  EXPECT_EQ(test.call("POST", "/echo", "hello").status, 200);
}

TEST(HttpServer, RefusesABodyThatDoesNotFitBesideTheOthers) {
  TestServer test({.body_limit_bytes = 100, .all_bodies_limit_bytes = 150});
  const std::string body(80, 'x');
  {
    const OpenClients half(test.server, 1,
                           "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n" + body);
    const HttpResponse refused = test.call("POST", "/echo", body);
    EXPECT_EQ(refused.status, 429);
    EXPECT_EQ(find_header(refused.headers, "Retry-After"), "1");
    EXPECT_TRUE(
        test.raw("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n50\r\n" +
                 body + "\r\n0\r\n\r\n")
            .starts_with("HTTP/1.1 429"));
  }
  int status = 429;
  for (int i = 0; i < 500 && status == 429; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    status = test.call("POST", "/echo", body).status;
  }
  EXPECT_EQ(status, 200);
}

TEST(HttpServer, ClosesAConnectionWhoseHeadIsSlow) {
  TestServer test({.head_timeout = std::chrono::milliseconds(50)});
  EXPECT_EQ(test.raw("GET /query HTTP/1.1\r\nHost:"), "");
}

TEST(HttpServer, SaysContinueToAClientThatAsks) {
  TestServer test;
  asio::io_context context;
  asio::ip::tcp::socket socket(context);
  socket.connect({asio::ip::make_address("127.0.0.1"), test.server.port()});
  asio::write(socket, asio::buffer(
                          std::string_view("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
                                           "Expect: 100-continue\r\nConnection: close\r\n\r\n")));
  std::string answer(25, '\0');
  asio::read(socket, asio::buffer(answer));
  EXPECT_EQ(answer, "HTTP/1.1 100 Continue\r\n\r\n");
  asio::write(socket, asio::buffer(std::string_view("ok")));
  boost::system::error_code error;
  answer.clear();
  asio::read(socket, asio::dynamic_buffer(answer), error);
  EXPECT_TRUE(answer.ends_with("\r\n\r\nok")) << answer;
}

}  // namespace
}  // namespace slime::net
