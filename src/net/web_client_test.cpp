#include "net/web_client.h"

#include <gtest/gtest.h>

#include "net/digest.h"

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

TEST(Digest, IsThatOfThePublishedExamples) {
  Digest sha256(Digest::Kind::kSha256);
  sha256.update("a");
  sha256.update("bc");
  EXPECT_EQ(sha256.finish(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Digest sha1(Digest::Kind::kSha1);
  sha1.update("abc");
  EXPECT_EQ(sha1.finish(), "a9993e364706816aba3e25717850c26c9cd0d89d");
}

}  // namespace
}  // namespace slime::net
