#include "core/secret_urls.h"

#include <gtest/gtest.h>

namespace slime {
namespace {

TEST(SecretUrls, PasswordsAreHiddenInsideSentences) {
  EXPECT_EQ(without_passwords("ask http://me:p@ss@judge:80/a?b=c@d or http://other/x@y"),
            "ask http://***@judge:80/a?b=c@d or http://other/x@y");
}

TEST(SecretUrls, ParametersAreHiddenByTheirNames) {
  EXPECT_EQ(without_passwords("http://judge/score?token=a1&round=2&api_key=b2: no answer"),
            "http://judge/score?token=***&round=2&api_key=*** no answer");
  EXPECT_EQ(without_passwords("http://judge/score?a=1&b"), "http://judge/score?a=1&b");
}

TEST(SecretUrls, NamesOfSecretsAreKnownFusedAndInCapitals) {
  for (const char* name : {"my-apikey", "judge-auth", "Token", "apiKey", "HF_TOKEN", "dbpassword"})
    EXPECT_TRUE(is_secret_name(name)) << name;
  for (const char* name : {"monkey", "author", "keys", "tokens", "label-column"})
    EXPECT_FALSE(is_secret_name(name)) << name;
}

}  // namespace
}  // namespace slime
