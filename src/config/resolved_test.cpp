#include "config/resolved.h"

#include <gtest/gtest.h>

#include "config/flag_table.h"
#include "config/overloaded.h"
#include "config/parse_flags.h"
#include "core/error.h"

namespace slime::config {
namespace {

/// As it travels: as text.
RunConfig there_and_back(const RunConfig& config) {
  return run_config_from(parse_json(json_text(to_json(config)), "test").as_object());
}

/// The flags whose values differ.
std::vector<std::string> differences(const RunConfig& a, const RunConfig& b) {
  std::vector<std::string> names;
  for (const FlagRow& flag : flag_table()) {
    std::visit(Overloaded{[](std::monostate) {},
                          [&](auto member) {
                            if (!(a.*member == b.*member)) names.emplace_back(flag.name);
                          }},
               flag.member);
  }
  return names;
}

TEST(ResolvedConfiguration, EveryFlagComesBackAsItWas) {
  RunConfig config;
  int64_t number = 0;
  for (const FlagRow& flag : flag_table()) {
    ++number;
    const auto third = static_cast<double>(number) / 3e7;  // no short decimal
    std::visit(
        Overloaded{
            [](std::monostate) {}, [&](Flag<bool> RunConfig::*member) { config.*member = true; },
            [&](Flag<int64_t> RunConfig::*member) { config.*member = number << 40; },
            [&](Flag<double> RunConfig::*member) { config.*member = third; },
            [&](Flag<std::string> RunConfig::*member) { config.*member = "a \"word\"\n"; },
            [&](Flag<std::optional<int64_t>> RunConfig::*member) { config.*member = -number; },
            [&](Flag<std::optional<double>> RunConfig::*member) { config.*member = third; },
            [&](Flag<std::vector<std::string>> RunConfig::*member) {
              config.*member = {"one", ""};
            },
            [&](Flag<std::vector<int64_t>> RunConfig::*member) {
              config.*member = {number, 0};
            }},
        flag.member);
  }
  config.wandb_key = "";  // a secret does not travel
  config.num_engine_workers = 2;
  RunConfig critic;
  critic.lr = 1e-5;
  config.critic = std::make_shared<const RunConfig>(critic);
  const RunConfig back = there_and_back(config);
  EXPECT_EQ(differences(back, config), std::vector<std::string>());
  EXPECT_EQ(back.num_engine_workers, 2);
  ASSERT_NE(back.critic, nullptr);
  EXPECT_EQ(back.critic->lr, 1e-5);
  EXPECT_EQ(differences(there_and_back(RunConfig()), RunConfig()), std::vector<std::string>());
}

TEST(ResolvedConfiguration, WhatIsNoConfigurationIsRefused) {
  for (const char* text :
       {"{}", R"({"flags": {"--lr": "x"}, "num_engine_workers": 0, "critic": null})",
        R"({"flags": {"--no-such-flag": 1}, "num_engine_workers": 0, "critic": null})"})
    EXPECT_THROW(run_config_from(parse_json(text, "test").as_object()), ConfigError) << text;
}

}  // namespace
}  // namespace slime::config
