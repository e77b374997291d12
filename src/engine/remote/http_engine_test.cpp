#include "engine/remote/http_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/version_runs.h"
#include "engine/http/test_server.h"
#include "engine/request_parts.h"

namespace slime::engine {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using Cause = FinishReason::Cause;
using Kind = FinishReason::Kind;

/// One request's updates together.
struct Heard {
  EngineClient::OnUpdate sink() {
    return [this](GenerateUpdate update) {
      const std::lock_guard lock(mutex);
      EXPECT_FALSE(finish) << "an update after the last one";
      ids.insert(ids.end(), update.output_ids.begin(), update.output_ids.end());
      log_probs.insert(log_probs.end(), update.output_log_probs.begin(),
                       update.output_log_probs.end());
      for (const VersionRun& run : update.versions) append_run(versions, run);
      finish = update.finish;
      prompt_tokens = update.prompt_tokens;
    };
  }
  bool has_ended() {
    const std::lock_guard lock(mutex);
    return finish.has_value();
  }
  std::size_t count() {
    const std::lock_guard lock(mutex);
    return ids.size();
  }

  std::mutex mutex;
  std::vector<TokenId> ids;
  std::vector<float> log_probs;
  std::vector<VersionRun> versions;
  std::optional<FinishReason> finish;
  int64_t prompt_tokens = 0;
};

HttpEngineConfig config_of(const std::string& url) {
  const std::size_t colon = url.rfind(':');
  return {.host = "127.0.0.1",
          .port = static_cast<std::uint16_t>(std::stoi(url.substr(colon + 1))),
          .abort_limit = std::chrono::milliseconds(2'000)};
}

GenerateRequest request_of(std::string rid, int64_t max_new_tokens) {
  GenerateRequest request;
  request.rid = std::move(rid);
  request.input_ids = {65, 66};
  request.return_logprob = true;
  request.sampling.max_new_tokens = max_new_tokens;
  return request;
}

WeightUpdate update_to(WeightVersion version, const char* model = "llama") {
  return {.version = version,
          .source = FromDirectory{std::string(SLIME_SOURCE_DIR "/tests/fixtures/models/") + model}};
}

TEST(HttpEngine, TellsTokensAndLogProbsOfTheServer) {
  TestServer server("hi");
  HttpEngine engine(config_of(server.server.url()));
  Heard heard;
  engine.submit(request_of("r", 10), heard.sink());
  ASSERT_TRUE(eventually([&] { return heard.has_ended(); }));
  EXPECT_THAT(heard.ids, ElementsAre('h', 'i', kEndId));
  EXPECT_THAT(heard.log_probs, ElementsAre(-0.5F, -1.0F, -1.5F));
  EXPECT_EQ(heard.finish->kind, Kind::kStop);
  EXPECT_EQ(heard.prompt_tokens, 2);
  EXPECT_EQ(engine.load()->num_running, 0);
}

TEST(HttpEngine, EndsWhatIsAbortedAndNothingElse) {
  TestServer server("");
  HttpEngine engine(config_of(server.server.url()));
  Heard first, second;
  const RequestHandle handle = engine.submit(request_of("a", 100'000), first.sink());
  engine.submit(request_of("b", 100'000), second.sink());
  ASSERT_TRUE(eventually([&] { return first.count() > 3 && second.count() > 3; }));
  EXPECT_TRUE(engine.abort(handle));
  ASSERT_TRUE(eventually([&] { return first.has_ended(); }));
  EXPECT_EQ(first.finish->cause, Cause::kRequested);
  EXPECT_FALSE(second.has_ended());
  EXPECT_TRUE(engine.abort_prefix("b"));
  ASSERT_TRUE(eventually([&] { return second.has_ended(); }));
}

TEST(HttpEngine, ARequestGoesOnBehindAnUpdateAndKnowsWhichWeightsDrewWhat) {
  TestServer server("");
  HttpEngine engine(config_of(server.server.url()));
  ASSERT_TRUE(engine.update_weights(update_to(7)));
  Heard heard;
  engine.submit(request_of("r", 100'000), heard.sink());
  ASSERT_TRUE(eventually([&] { return heard.count() > 3; }));
  ASSERT_TRUE(engine.update_weights(update_to(8)));
  const std::size_t before = heard.count();
  EXPECT_EQ(engine.weight_version(), 8);
  EXPECT_FALSE(heard.has_ended());
  ASSERT_TRUE(eventually([&] { return heard.count() > before + 3; }));
  engine.abort_all();
  ASSERT_TRUE(eventually([&] { return heard.has_ended(); }));
  ASSERT_EQ(heard.versions.size(), 2U);
  EXPECT_EQ(heard.versions[0].version, 7);
  EXPECT_EQ(heard.versions[1].version, 8);
  EXPECT_EQ(heard.versions[0].num_tokens + heard.versions[1].num_tokens,
            static_cast<int64_t>(heard.ids.size()));
  EXPECT_EQ(heard.ids.size(), heard.log_probs.size());
  // The second part began with all tokens of the first.
  const auto& seen = server.engine.requests();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(static_cast<int64_t>(seen[1].input_ids.size()), 2 + heard.versions[0].num_tokens);
}

TEST(HttpEngine, AnUpdateThatTheServerRefusesChangesNothing) {
  TestServer server("");
  HttpEngine engine(config_of(server.server.url()));
  ASSERT_TRUE(engine.update_weights(update_to(3)));
  Heard heard;
  engine.submit(request_of("r", 100'000), heard.sink());
  ASSERT_TRUE(eventually([&] { return heard.count() > 3; }));
  const auto refused = engine.update_weights(update_to(4, "qwen2"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(engine.weight_version(), 3);
  const std::size_t before = heard.count();
  EXPECT_TRUE(eventually([&] { return heard.count() > before; }));
  EXPECT_FALSE(engine.update_weights({.version = 5}));  // no folder
  engine.abort_all();
  ASSERT_TRUE(eventually([&] { return heard.has_ended(); }));
}

TEST(HttpEngine, WhatTheServerRefusesIsTheCallers) {
  TestServer server("hi");
  HttpEngine engine(config_of(server.server.url()));
  Heard heard;
  GenerateRequest request = request_of("r", 10);
  request.input_ids = {1'000'000};
  engine.submit(std::move(request), heard.sink());
  ASSERT_TRUE(eventually([&] { return heard.has_ended(); }));
  EXPECT_EQ(heard.finish->cause, Cause::kBadRequest);
  EXPECT_THAT(heard.finish->message, HasSubstr("input_ids"));
}

TEST(HttpEngine, GrammarsAreRefusedWithTheReason) {
  TestServer server("hi");
  HttpEngine engine(config_of(server.server.url()));
  Heard heard;
  GenerateRequest request = request_of("r", 10);
  request.sampling.regex = "hi";
  engine.submit(std::move(request), heard.sink());
  ASSERT_TRUE(eventually([&] { return heard.has_ended(); }));
  EXPECT_EQ(heard.finish->cause, Cause::kBadRequest);
  EXPECT_THAT(heard.finish->message, HasSubstr("not asked for grammars"));
}

TEST(HttpEngine, WeightsThatSomebodyElseBroughtAreNoticed) {
  TestServer server("hi");
  HttpEngine engine(config_of(server.server.url()));
  ASSERT_TRUE(engine.update_weights(update_to(3)));
  ASSERT_EQ(server.call("POST", "/update_weight_version", R"({"new_version":"mine"})").status, 200);
  Heard heard;
  engine.submit(request_of("r", 10), heard.sink());
  ASSERT_TRUE(eventually([&] { return heard.has_ended(); }));
  EXPECT_EQ(heard.finish->cause, Cause::kEngineFailed);
  EXPECT_THAT(heard.finish->message, HasSubstr("mine"));
  EXPECT_TRUE(heard.ids.empty());
}

TEST(HttpEngine, AServerThatIsGoneIsLostWithTheTokensThatWereTold) {
  auto server = std::make_unique<TestServer>("");
  HttpEngine engine(config_of(server->server.url()));
  Heard heard;
  engine.submit(request_of("r", 100'000), heard.sink());
  ASSERT_TRUE(eventually([&] { return heard.count() > 3; }));
  server.reset();
  ASSERT_TRUE(eventually([&] { return heard.has_ended(); }));
  EXPECT_EQ(heard.finish->cause, Cause::kEngineLost);
  Heard next;
  engine.submit(request_of("s", 10), next.sink());
  ASSERT_TRUE(eventually([&] { return next.has_ended(); }));
  EXPECT_EQ(next.finish->cause, Cause::kEngineLost);
  EXPECT_TRUE(engine.why_unhealthy());
}

TEST(HttpEngine, PausedItSendsNothingAndGoesOnWhenResumed) {
  TestServer server("");
  HttpEngine engine(config_of(server.server.url()));
  Heard heard;
  engine.submit(request_of("r", 100'000), heard.sink());
  ASSERT_TRUE(eventually([&] { return heard.count() > 3; }));
  ASSERT_TRUE(engine.pause(PauseMode::kInPlace));
  EXPECT_EQ(server.engine.load()->num_running, 0);
  const std::size_t before = heard.count();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(heard.count(), before);
  ASSERT_TRUE(engine.resume());
  EXPECT_TRUE(eventually([&] { return heard.count() > before; }));
  engine.abort_all();
  EXPECT_TRUE(eventually([&] { return heard.has_ended(); }));
}

}  // namespace
}  // namespace slime::engine
