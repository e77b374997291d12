/// SGLang's surface, endpoint by endpoint.

#include <gtest/gtest.h>

#include <string>

#include "engine/http/test_server.h"

namespace slime::engine {
namespace {

TEST(SglangSurface, EachEndpointAnswersAsItsTierSays) {
  TestServer test("Hi");
  const json::value endpoints =
      read_json_file(SLIME_SOURCE_DIR "/tests/fixtures/sglang/endpoints.json");
  std::size_t num_endpoints = 0;
  for (const json::value& endpoint : endpoints.as_array()) {
    const std::string path(at(endpoint, "/path").as_string());
    const std::int64_t tier = at(endpoint, "/tier").as_int64();
    ++num_endpoints;
    for (const json::value& word : at(endpoint, "/methods").as_array()) {
      const std::string method(word.as_string());
      const net::HttpResponse response = test.call(method, path, method == "GET" ? "" : "{}");
      const std::string shown = method + " " + path + " " + response.body;
      EXPECT_NE(response.status, 404) << shown;
      EXPECT_NE(response.status, 405) << shown;
      EXPECT_TRUE(response.status < 500 || response.status == 501) << shown;
      if (tier < 2) {
        EXPECT_NE(response.status, 501) << shown;
      }
      if (response.status == 501) {
        const json::value body = parse_json(response.body, path);
        EXPECT_GT(at(body, "/error/message").as_string().size(), 10U) << shown;
      }
    }
  }
  EXPECT_EQ(num_endpoints, 51U);
  EXPECT_FALSE(test.engine.load()->is_paused) << "each that pauses has one that resumes";
}

}  // namespace
}  // namespace slime::engine
