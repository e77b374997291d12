#include "hub/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "core/error.h"

namespace slime::hub {
namespace {

Settings with(const std::map<std::string, std::string>& values) {
  return settings_of([&](const char* name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(HubSettings, TheCacheIsWhereTheHubsToolsHaveIt) {
  EXPECT_EQ(with({{"HOME", "/h"}}).cache, "/h/.cache/huggingface/hub");
  EXPECT_EQ(with({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}}).cache, "/x/huggingface/hub");
  EXPECT_EQ(with({{"HOME", "/h"}, {"HF_HOME", "~/hf"}}).cache, "/h/hf/hub");
  EXPECT_EQ(with({{"HF_HOME", "/hf"}, {"HF_HUB_CACHE", "/c"}}).cache, "/c");
}

TEST(HubSettings, TheTokenComesFromTheEnvironmentOrItsFile) {
  const std::filesystem::path home = std::filesystem::path(testing::TempDir()) / "hf_home";
  std::filesystem::create_directories(home);
  std::ofstream(home / "token") << "hf_file\n";
  EXPECT_EQ(with({{"HF_HOME", home}}).token, "hf_file");
  EXPECT_EQ(with({{"HF_HOME", home}, {"HF_TOKEN", " hf_given "}}).token, "hf_given");
  EXPECT_EQ(with({{"HF_HOME", home}, {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"}}).token, "");
  EXPECT_THROW(with({{"HF_TOKEN", "two words\r\nHost: evil"}}), ConfigError);
}

TEST(HubSettings, ATokenDoesNotTravelUnencrypted) {
  EXPECT_EQ(with({{"HF_ENDPOINT", "http://127.0.0.1:8000/"}, {"HF_TOKEN", "t"}}).endpoint,
            "http://127.0.0.1:8000");
  EXPECT_NO_THROW(with({{"HF_ENDPOINT", "http://mirror.example"}}));
  try {
    with({{"HF_ENDPOINT", "http://mirror.example"}, {"HF_TOKEN", "hf_secret"}});
    ADD_FAILURE() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("unencrypted"));
    EXPECT_THAT(error.what(), testing::Not(testing::HasSubstr("hf_secret")));
  }
  EXPECT_THROW(with({{"HF_ENDPOINT", "mirror.example"}}), ConfigError);
}

TEST(HubSettings, OfflineTimesAndProxiesAreRead) {
  EXPECT_FALSE(with({{"HF_HUB_OFFLINE", "0"}}).is_offline);
  EXPECT_TRUE(with({{"HF_HUB_OFFLINE", "1"}}).is_offline);
  EXPECT_TRUE(with({{"TRANSFORMERS_OFFLINE", "true"}}).is_offline);
  EXPECT_EQ(with({{"HF_HUB_DOWNLOAD_TIMEOUT", "2.5"}}).web.silence_limit,
            std::chrono::milliseconds(2500));
  EXPECT_THROW(with({{"HF_HUB_DOWNLOAD_TIMEOUT", "long"}}), ConfigError);
  EXPECT_EQ(with({{"HTTPS_PROXY", "http://p:1"}}).web.https_proxy, "http://p:1");
  EXPECT_EQ(with({{"HTTP_PROXY", "http://p:1"}}).web.http_proxy, "");
}

}  // namespace
}  // namespace slime::hub
