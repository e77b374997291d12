#include "gateway/request_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slime::gateway {
namespace {

using testing::ElementsAre;

net::HttpRequest post(std::string body, net::HttpHeaders headers = {}) {
  return {.method = "POST",
          .path = "/generate",
          .query = "",
          .headers = std::move(headers),
          .body = std::move(body)};
}

std::vector<std::pair<std::string, std::string>> members_of(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> members;
  for (const MemberSpan& each : top_members(text)) members.emplace_back(each.name, each.value);
  return members;
}

TEST(RequestFacts, MembersAreTheSpansOfTheirValues) {
  using Pair = std::pair<std::string, std::string>;
  EXPECT_THAT(members_of(R"( { "a" : [1, {"b":"]}"}] , "c":"x\"y", "d" : -1.5e3 ,"e":null} )"),
              ElementsAre(Pair("a", R"([1, {"b":"]}"}])"), Pair("c", R"("x\"y")"),
                          Pair("d", "-1.5e3"), Pair("e", "null")));
}

TEST(RequestFacts, WhatIsNoObjectHasNoMembersAndBrokenOnesEndTheList) {
  for (const char* text : {"", "[1]", "\"a\"", "{", "{}", "{\"a\"", "{\"a\":", "{\"a\":}", "{\"a\\",
                           "{\"a\":\"b", "{\"a\":[1,2", "{\"a\":\"\\"}) {
    EXPECT_TRUE(members_of(text).empty()) << text;
  }
  EXPECT_EQ(members_of(R"({"a":1,"b":[1)").size(), 1U);
}

TEST(RequestFacts, RidsAreATextOrAList) {
  EXPECT_THAT(facts_of(post(R"({"rid":"a\u0062"})")).rids, ElementsAre("ab"));
  EXPECT_THAT(facts_of(post(R"({"text":["x","y"],"rid":["1","2"]})")).rids, ElementsAre("1", "2"));
  EXPECT_TRUE(facts_of(post(R"({"rid":7})")).rids.empty());
  EXPECT_TRUE(facts_of(post(R"({"meta":{"rid":"inner"}})")).rids.empty());
}

TEST(RequestFacts, TheRoutingKeyIsTheHeadersElseOfTheConversation) {
  const auto key = [](std::string body, net::HttpHeaders headers = {}) {
    const net::HttpRequest request = post(std::move(body), std::move(headers));
    return facts_of(request).routing_key;
  };
  EXPECT_EQ(key(R"({"user":"u"})", {{"x-smg-routing-key", "k"}}), "k");
  EXPECT_EQ(key(R"({"user":"u"})", {{"session_id", "codex"}}), "codex");
  EXPECT_EQ(key(R"({"user":"u","session_id":"s"})"), "s");
  EXPECT_EQ(key(R"({"session_params":{"id":"p"}})"), "p");
  EXPECT_EQ(key(R"({"prompt_cache_key":"c","user":"u"})"), "c");
  EXPECT_EQ(key(R"({"metadata":{"user_id":"m"}})"), "m");
  EXPECT_EQ(key(R"({"metadata":"text","user":"u"})"), "u");
  EXPECT_EQ(key(R"({"user":12})"), "12");
  EXPECT_EQ(key(R"({"user":null})"), "");
  EXPECT_EQ(key("no JSON"), "");
}

TEST(RequestFacts, APromptThatGoesOnBeginsWithTheOneBefore) {
  const auto prompt = [](const net::HttpRequest& request) {
    return std::string(facts_of(request).prompt);
  };
  const std::string ids = prompt(post(R"({"input_ids":[1, 2, 3]})"));
  EXPECT_TRUE(prompt(post(R"({"input_ids":[1, 2, 3, 4]})")).starts_with(ids)) << ids;
  const std::string chat = prompt(post(R"({"model":"m","messages":[{"role":"user"}]})"));
  EXPECT_TRUE(
      prompt(post(R"({"messages":[{"role":"user"},{"role":"assistant"}]})")).starts_with(chat));
  EXPECT_EQ(prompt(post(R"({"text":null,"prompt":"Once"})")), "\"Once");
  EXPECT_EQ(prompt(post("")), "");
}

}  // namespace
}  // namespace slime::gateway
