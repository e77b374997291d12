#include "cli/serve_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/sglang_flags.h"

namespace slime::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Parsed {
  ServeOptions options;
  std::optional<int> exit_code;
  std::string says;
};

Parsed parsed(const std::vector<std::string>& words) {
  Parsed parsed;
  CLI::App app("Serves.", "slime serve");
  add_serve_options(app, parsed.options);
  testing::internal::CaptureStderr();
  parsed.exit_code = parse_options(app, words);
  parsed.says = testing::internal::GetCapturedStderr();
  return parsed;
}

TEST(ServeOptions, EveryLaunchFlagOfSglangIsThere) {
  std::ifstream file(SLIME_SOURCE_DIR "/tests/fixtures/sglang/launch_flags.txt");
  ServeOptions options;
  CLI::App app("Serves.", "slime serve");
  add_serve_options(app, options);
  int num_flags = 0;
  for (std::string flag; std::getline(file, flag); ++num_flags)
    EXPECT_NE(app.get_option_no_throw(flag), nullptr) << flag;
  EXPECT_EQ(num_flags, 89);
}

TEST(ServeOptions, EachIdleFlagOfSglangSaysWhyOrIsUsual) {
  for (const SglangFlag& flag : idle_sglang_flags()) {
    const std::string names = flag.name;
    std::vector<std::string> words{"--model", "m", names.substr(0, names.find(','))};
    if (flag.takes != SglangFlag::Takes::kNothing) words.emplace_back("x7");
    if (flag.takes == SglangFlag::Takes::kWords) words.emplace_back("x8");
    const Parsed given = parsed(words);
    EXPECT_FALSE(given.exit_code) << words[2];
    EXPECT_THAT(given.says, HasSubstr(words[2])) << words[2];
    EXPECT_THAT(given.says, HasSubstr("has no effect: " + std::string(flag.reason)));
    if (flag.usual.empty()) continue;
    words.back() = flag.usual.substr(0, flag.usual.find(' '));
    EXPECT_EQ(parsed(words).says, "") << words[2];
  }
}

TEST(ServeOptions, AnArgumentListOfSglangIsTakenAndActs) {
  const Parsed given = parsed({"--model-path",
                               "m",
                               "--host",
                               "127.0.0.1",
                               "--port",
                               "30001",
                               "--tp",
                               "2",
                               "--dtype",
                               "half",
                               "--kv-cache-dtype",
                               "bf16",
                               "--mem-fraction-static",
                               "0.85",
                               "--chunked-prefill-size",
                               "-1",
                               "--cuda-graph-bs",
                               "1",
                               "2",
                               "4",
                               "--max-total-tokens",
                               "4096",
                               "--stream-interval",
                               "8",
                               "--api-key",
                               "secret",
                               "--dp-size",
                               "1",
                               "--attention-backend",
                               "fa3",
                               "--trust-remote-code",
                               "--schedule-policy",
                               "lpm",
                               "--schedule-policy",
                               "fcfs",
                               "--skip-server-warmup"});
  ASSERT_FALSE(given.exit_code) << given.says;
  const ServeOptions& options = given.options;
  EXPECT_EQ(options.model, "m");
  EXPECT_EQ(options.http.port, 30001);
  EXPECT_EQ(options.tp_size, 2);
  EXPECT_EQ(options.dtype, "float16");
  EXPECT_EQ(options.engine.kv_cache_dtype, "bfloat16");
  EXPECT_EQ(options.engine.max_prefill_tokens, -1);
  EXPECT_EQ(options.max_total_tokens, 4096);
  EXPECT_EQ(options.stream_interval, 8);
  EXPECT_EQ(options.http.access.api_key, "secret");
  EXPECT_THAT(given.says, HasSubstr("slime serve: --mem-fraction-static 0.85 has no effect: "));
  EXPECT_THAT(given.says, HasSubstr("slime serve: --cuda-graph-bs 1 2 4 has no effect: "));
  EXPECT_THAT(given.says, HasSubstr("--api-key-file"));
  EXPECT_THAT(given.says, Not(HasSubstr("secret")));
  EXPECT_THAT(given.says, Not(HasSubstr("--dp-size")));
  EXPECT_THAT(given.says, Not(HasSubstr("--schedule-policy")));
}

TEST(ServeOptions, AnUnknownFlagIsStillRefused) {
  const Parsed given = parsed({"--model", "m", "--atention-backend", "fa3"});
  EXPECT_EQ(given.exit_code, 2);
  EXPECT_THAT(given.says, HasSubstr("did you mean --attention-backend?"));
}

}  // namespace
}  // namespace slime::cli
