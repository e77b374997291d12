#include "gateway/json_bodies.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace slime::gateway {
namespace {

TEST(JsonBodies, AWorkerIsAddedByItsAddress) {
  EXPECT_EQ(url_in_body(R"({"url":"http://h:1","worker_type":"regular","api_key":null})"),
            "http://h:1");
  for (const char* body : {"", "[]", "{}", R"({"url":1})", R"({"url":"h","worker_type":"decode"})",
                           R"({"url":"h","api_key":"k"})"})
    EXPECT_THROW(url_in_body(body), ConfigError) << body;
}

TEST(JsonBodies, ASessionWithoutANameGetsOne) {
  EXPECT_EQ(named_session(R"({"name":"a"})"), R"({"name":"a"})");
  EXPECT_EQ(named_session("no JSON"), "no JSON");
  for (const char* body : {"", "{}", R"({"name":null,"max_turns":3})"}) {
    const std::string named = named_session(body);
    const json::value parsed = parse_json(named, "body");
    EXPECT_EQ(parsed.at("name").as_string().size(), 32U) << named;
    EXPECT_EQ(named_session(named), named);
  }
}

TEST(JsonBodies, ListsOfWorkersAreOneListWithEachMemberOnce) {
  MergedList all;
  for (const char* body :
       {R"({"data":[{"id":"m","n":1},{"id":"k"}]})", R"({"data":[{"id":"m"},7]})"})
    all.add(object_with_list(body, "data")->at("data").get_array());
  EXPECT_EQ(json_text(all.take()), R"([{"id":"m","n":1},{"id":"k"},7])");
  EXPECT_FALSE(object_with_list(R"({"data":{}})", "data"));
  EXPECT_FALSE(models_in("[]"));
  EXPECT_EQ(models_in(R"({"data":[{"id":"m"},{"id":1},2]})"), (std::vector<std::string>{"m"}));
}

}  // namespace
}  // namespace slime::gateway
