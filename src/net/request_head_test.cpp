#include "net/request_head.h"

#include <gtest/gtest.h>

namespace slime::net {
namespace {

int status_of(std::string_view text) {
  const auto result = parse_request_head(text);
  const auto* bad = std::get_if<HeadProblem>(&result);
  return bad == nullptr ? 200 : bad->status;
}

TEST(RequestHead, SplitsLineAndFields) {
  const auto result = parse_request_head(
      "POST /a%20b?x=1 HTTP/1.1\r\nHost: localhost:1\r\nContent-Length: 12\r\nX:  two words "
      "\t\r\n\r\n");
  const auto& head = std::get<RequestHead>(result);
  EXPECT_EQ(head.method, "POST");
  EXPECT_EQ(head.path, "/a b");
  EXPECT_EQ(head.query, "x=1");
  EXPECT_EQ(head.content_length, 12u);
  EXPECT_EQ(find_header(head.headers, "x"), "two words");
  EXPECT_TRUE(head.keeps_alive);
}

TEST(RequestHead, KnowsWhenAConnectionEnds) {
  const auto alive = [](std::string_view text) {
    return std::get<RequestHead>(parse_request_head(text)).keeps_alive;
  };
  EXPECT_FALSE(alive("GET / HTTP/1.1\r\nHost: x\r\nConnection: foo, Close\r\n\r\n"));
  EXPECT_FALSE(alive("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(alive("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
}

TEST(RequestHead, RefusesWhatTwoServersCouldReadDifferently) {
  const std::string start = "POST / HTTP/1.1\r\nHost: x\r\n";
  const std::pair<const char*, int> cases[] = {
      {"Content-Length: 1\r\nContent-Length: 1\r\n\r\n", 400},
      {"Content-Length: +1\r\n\r\n", 400},
      {"Content-Length: 0x1\r\n\r\n", 400},
      {"Content-Length: 1, 1\r\n\r\n", 400},
      {"Content-Length: -1\r\n\r\n", 400},
      {"Content-Length:\r\n\r\n", 400},
      {"Content-Length: 99999999999999999999\r\n\r\n", 400},
      {"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"Transfer-Encoding: gzip\r\n\r\n", 501},
      {"Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
      {"Transfer-Encoding: xchunked\r\n\r\n", 501},
      {"A : b\r\n\r\n", 400},
      {" folded\r\n\r\n", 400},
      {"A: b\r\n folded\r\n\r\n", 400},
      {"A: b\nB: c\r\n\r\n", 400},
      {"A: b\rB: c\r\n\r\n", 400},
      {"A\x01: b\r\n\r\n", 400},
      {"A: b\x7f\r\n\r\n", 400},
      {": b\r\n\r\n", 400},
      {"no colon\r\n\r\n", 400},
      {"Host: y\r\n\r\n", 400},
      {"Expect: miracles\r\n\r\n", 417},
      {"A: b\r\n\r\n", 200},
  };
  for (const auto& [fields, status] : cases) EXPECT_EQ(status_of(start + fields), status) << fields;
}

TEST(RequestHead, RefusesMalformedRequestLines) {
  const std::pair<const char*, int> cases[] = {
      {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 200},
      {"GET http://x/a HTTP/1.1\r\nHost: x\r\n\r\n", 200},
      {"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 200},
      {"GET * HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET  / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /\x7f HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /\r\nHost: x\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505},
      {"GET / http/1.1\r\nHost: x\r\n\r\n", 400},
      {"G(T / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
  };
  for (const auto& [text, status] : cases) EXPECT_EQ(status_of(text), status) << text;
}

TEST(RequestHead, LimitsTheNumberOfFields) {
  std::string text = "GET / HTTP/1.1\r\nHost: x\r\n";
  for (int i = 0; i < 100; ++i) text += "A: b\r\n";
  EXPECT_EQ(status_of(text + "\r\n"), 431);
}

ChunkedBody::State decode(std::string_view text, std::string& body, std::size_t limit = 1000) {
  ChunkedBody decoder(limit);
  ChunkedBody::State state = ChunkedBody::State::kNeedsMore;
  for (const char& c : text) {  // byte by byte: every split must work
    std::string_view piece(&c, 1);
    state = decoder.feed(piece, body);
    if (state != ChunkedBody::State::kNeedsMore) break;
  }
  return state;
}

TEST(ChunkedBody, JoinsChunksAndDropsExtensionsAndTrailers) {
  std::string body;
  EXPECT_EQ(decode("3;a=b\r\nabc\r\nA \r\n0123456789\r\n0\r\nT: x\r\n\r\n", body),
            ChunkedBody::State::kDone);
  EXPECT_EQ(body, "abc0123456789");
}

TEST(ChunkedBody, RefusesMalformedChunks) {
  for (const char* text : {"x\r\n", "\r\n", "-1\r\n", "0x1\r\na\r\n", "1\na\r\n", "1\r\nab\r\n",
                           "1\r\na\rb", "1111111111111111\r\n"}) {
    std::string body;
    EXPECT_EQ(decode(text, body), ChunkedBody::State::kMalformed) << text;
  }
}

TEST(ChunkedBody, StopsAtTheLimit) {
  std::string body;
  EXPECT_EQ(decode("5\r\n12345\r\n6\r\n", body, 10), ChunkedBody::State::kTooLarge);
  EXPECT_EQ(decode("FFFFFFFFFFFFFFF\r\n", body, 10), ChunkedBody::State::kTooLarge);
}

}  // namespace
}  // namespace slime::net
