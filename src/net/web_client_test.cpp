#include "net/web_client.h"

#include <gtest/gtest.h>

namespace slime::net {
namespace {

TEST(WebClient, OriginsDifferByTheirPortAndScheme) {
  EXPECT_EQ(origin_of("https://Hub.co/a?b"), "https://hub.co:443");
  EXPECT_EQ(origin_of("http://hub.co"), "http://hub.co:80");
  EXPECT_EQ(origin_of("http://hub.co:8080/x"), "http://hub.co:8080");
  EXPECT_EQ(origin_of("ftp://hub.co/x"), "");
  EXPECT_EQ(origin_of("hub.co"), "");
}

TEST(WebClient, RedirectsMayBeRelative) {
  EXPECT_EQ(redirected("https://a.co/x/y?q=1", "/z?r=2"), "https://a.co/z?r=2");
  EXPECT_EQ(redirected("https://a.co/x/y", "z"), "https://a.co/x/z");
  EXPECT_EQ(redirected("https://a.co/x", "https://b.co/z#part"), "https://b.co/z");
  EXPECT_EQ(redirected("https://a.co/x", "file:///etc/passwd"), "");
  EXPECT_EQ(redirected("https://a.co/x", "%%"), "");
}

TEST(WebClient, PathsAreEncoded) {
  EXPECT_EQ(encoded_path("a b/\xc3\xa4?#.json"), "a%20b/%C3%A4%3F%23.json");
}

TEST(WebClient, ThisMachineAndNamedHostsNeedNoProxy) {
  EXPECT_TRUE(needs_no_proxy("127.0.0.1", ""));
  EXPECT_TRUE(needs_no_proxy("LocalHost", ""));
  EXPECT_TRUE(needs_no_proxy("a.example.org", "x, .example.org"));
  EXPECT_TRUE(needs_no_proxy("example.org", ".example.org"));
  EXPECT_TRUE(needs_no_proxy("any", "*"));
  EXPECT_FALSE(needs_no_proxy("badexample.org", "example.org"));
  EXPECT_FALSE(needs_no_proxy("any", ""));
}

}  // namespace
}  // namespace slime::net
