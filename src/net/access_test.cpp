#include "net/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "net/http_message.h"
#include "net/request_head.h"

namespace slime::net {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string refusal_of(const AccessRules& rules, const HttpHeaders& headers) {
  RequestHead head;
  head.headers = headers;
  const std::optional<HttpResponse> refused = find_refusal(rules, RouteClass::kProbe, head);
  return refused ? refused->body : "";
}

TEST(Access, NamesTheFlagForHostsWhereTheCommandHasIt) {
  const HttpHeaders by_name = {{"Host", "models.example.com:8000"}},
                    by_page = {{"Host", "localhost:8000"}, {"Origin", "https://example.com"}};
  for (const HttpHeaders& headers : {by_name, by_page}) {
    EXPECT_THAT(refusal_of({}, headers), AllOf(HasSubstr("127.0.0.1"), Not(HasSubstr("--"))));
    EXPECT_THAT(refusal_of({.has_host_flag = true}, headers), HasSubstr("--allowed-host adds one"));
  }
  AccessRules rules;
  rules.allowed_hosts = {"models.example.com", "example.com"};
  EXPECT_EQ(refusal_of(rules, by_name), "");
  EXPECT_EQ(refusal_of(rules, by_page), "");
}

}  // namespace
}  // namespace slime::net
