#include "roles/adapter_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "model/adapter_files.h"
#include "model/adapters.h"
#include "model/golden_models_for_tests.h"
#include "model/weight_checksums.h"

namespace slime::roles {
namespace {

using engine::GenerateUpdate;

class AdapterEngineTest : public ::testing::Test {
 protected:
  static std::unique_ptr<model::Network> base() {
    return model::load_network(golden_models::directory("qwen3"), precision());
  }
  static model::Precision precision() { return model::Precision::of("float32"); }
  static std::string folder(const std::string& name) {
    return std::string(SLIME_SOURCE_DIR) + "/tests/fixtures/lora/qwen3/" + name;
  }
  /// Over the numbers of base_.
  std::unique_ptr<model::Network> over(const std::string& adapter = "") {
    model::Precision shared = precision();
    shared.shared = &base_->weights();
    auto network = model::make_blank_network(base_->config(), shared);
    if (!adapter.empty()) model::load_adapters(*network, folder(adapter));
    return network;
  }
  static std::future<GenerateUpdate> generate(engine::EngineClient& client, std::string rid,
                                              std::string adapter = "") {
    engine::GenerateRequest request;
    request.adapter = std::move(adapter);
    request.rid = std::move(rid);
    request.input_ids = {5, 6, 7, 8};
    request.sampling = {.max_new_tokens = 12, .temperature = 0, .ignore_eos = true};
    request.stream_interval = 0;
    auto promise = std::make_shared<std::promise<GenerateUpdate>>();
    std::future<GenerateUpdate> answer = promise->get_future();
    client.submit(std::move(request), [promise](GenerateUpdate update) {
      if (update.finish) promise->set_value(std::move(update));
    });
    return answer;
  }
  static engine::EngineConfig config() { return {.kv_cache_bytes = int64_t{1} << 22}; }

  SystemClock clock_;
  std::unique_ptr<model::Network> base_ = base();
};

TEST_F(AdapterEngineTest, NetworksOverOneBaseHaveItsNumbers) {
  const auto one = over("qv_r8"), other = over("patterns");
  EXPECT_TRUE(one->weights().flat().is_alias_of(base_->weights().flat()));
  EXPECT_TRUE(other->weights().flat().is_alias_of(base_->weights().flat()));
  EXPECT_EQ(base_->adapters(), nullptr);
  EXPECT_NE(one->adapters(), other->adapters());
}

TEST_F(AdapterEngineTest, RunsOfOneEngineHaveTheirAnswersAndVersionsAsIfAlone) {
  const std::string names[] = {"qv_r8", "patterns"};
  SharedEngine shared(over(), config(), 2, clock_);
  std::unique_ptr<model::Network> trained[] = {over(names[0]), over(names[1])};
  AdapterEngine runs[] = {{shared, "a", *trained[0], 3}, {shared, "b", *trained[1], 7}};
  // The engine stands still until both are there: one batch.
  engine::or_throw(shared.engine().pause(engine::PauseMode::kInPlace));
  std::future<GenerateUpdate> mixed[] = {generate(runs[0].client(), "r"),
                                         generate(runs[1].client(), "r")};
  engine::or_throw(shared.engine().resume());
  const WeightVersion versions[] = {3, 7};
  std::vector<std::vector<TokenId>> sampled;
  for (int i = 0; i < 2; ++i) {
    const GenerateUpdate update = mixed[i].get();
    EXPECT_EQ(update.rid, "r");
    EXPECT_EQ(update.versions, (std::vector<VersionRun>{{versions[i], 12}}));
    EXPECT_EQ(runs[i].client().weight_version(), versions[i]);
    engine::Engine alone(*trained[i], config(), clock_);
    const GenerateUpdate expected = generate(alone, "r").get();
    EXPECT_EQ(update.output_ids, expected.output_ids);
    EXPECT_EQ(update.output_log_probs, expected.output_log_probs) << "bit for bit";
    sampled.push_back(update.output_ids);
  }
  EXPECT_NE(sampled[0], sampled[1]);
}

TEST_F(AdapterEngineTest, OneRunPublishesForItselfAlone) {
  SharedEngine shared(over(), config(), 2, clock_);
  const auto first = over("qv_r8"), second = over("qv_r8");
  AdapterEngine a(shared, "a", *first, 0), b(shared, "b", *second, 0);
  const std::vector<TokenId> before = generate(a.client(), "").get().output_ids;
  EXPECT_EQ(generate(b.client(), "").get().output_ids, before);
  second->trained().flat().mul_(-3);
  EXPECT_EQ(generate(b.client(), "").get().output_ids, before) << "the engine's is a copy";
  for (WeightVersion version = 1; version < 5; ++version) b.update_weights(version, {});
  EXPECT_NE(generate(b.client(), "").get().output_ids, before);
  EXPECT_EQ(generate(a.client(), "").get().output_ids, before);
  EXPECT_EQ(a.client().weight_version(), 0);
  EXPECT_EQ(b.client().weight_version(), 4);
}

TEST_F(AdapterEngineTest, ARequestKeepsTheVersionThatItWasSubmittedWith) {
  SharedEngine shared(over(), config(), 1, clock_);
  const auto trained = over("qv_r8");
  AdapterEngine run(shared, "a", *trained, 7);
  const std::vector<TokenId> before = generate(run.client(), "").get().output_ids;
  engine::or_throw(shared.engine().pause(engine::PauseMode::kInPlace));
  std::future<GenerateUpdate> old = generate(run.client(), "old");
  trained->trained().flat().mul_(-3);
  run.update_weights(8, {});
  std::future<GenerateUpdate> fresh = generate(run.client(), "fresh");
  engine::or_throw(shared.engine().resume());
  const GenerateUpdate of_old = old.get(), of_fresh = fresh.get();
  EXPECT_EQ(of_old.output_ids, before);
  EXPECT_EQ(of_old.versions, (std::vector<VersionRun>{{7, 12}}));
  EXPECT_NE(of_fresh.output_ids, before);
  EXPECT_EQ(of_fresh.versions, (std::vector<VersionRun>{{8, 12}}));
}

TEST_F(AdapterEngineTest, OneRunEndsItsOwnRequestsAlone) {
  SharedEngine shared(over(), config(), 2, clock_);
  const auto trained = over("qv_r8");
  AdapterEngine a(shared, "a", *trained, 0);
  auto b = std::make_unique<AdapterEngine>(shared, "b", *trained, 0);
  const std::vector<TokenId> whole = generate(a.client(), "").get().output_ids;
  engine::or_throw(shared.engine().pause(engine::PauseMode::kInPlace));
  std::future<GenerateUpdate> kept = generate(a.client(), "x");
  std::future<GenerateUpdate> aborted = generate(b->client(), "x");
  engine::or_throw(b->client().abort_all());
  EXPECT_EQ(aborted.get().finish->kind, engine::FinishReason::Kind::kAbort);
  std::future<GenerateUpdate> left = generate(b->client(), "y");
  b.reset();
  ASSERT_EQ(left.wait_for(std::chrono::seconds(0)), std::future_status::ready)
      << "a run that is gone hears of no request";
  engine::or_throw(shared.engine().resume());
  EXPECT_EQ(kept.get().output_ids, whole);
}

TEST_F(AdapterEngineTest, WhatIsOfAllIsRefusedAndAdaptersOfOthersAreNotFound) {
  SharedEngine shared(over(), config(), 2, clock_);
  const auto trained = over("qv_r8");
  AdapterEngine a(shared, "a", *trained, 0), b(shared, "b", *trained, 0);
  for (const char* name : {"nobody", "b", "b@0", "a@0"}) {
    const GenerateUpdate update = generate(a.client(), "", name).get();
    EXPECT_EQ(update.finish->cause, engine::FinishReason::Cause::kBadRequest) << name;
    EXPECT_THAT(update.finish->message, ::testing::HasSubstr("no adapter")) << name;
  }
  EXPECT_FALSE(a.client().update_weights({})) << "the base stays as it is";
  EXPECT_FALSE(a.client().sleep());
  EXPECT_FALSE(a.client().wake());
  EXPECT_FALSE(a.client().pause(engine::PauseMode::kRetract));
  EXPECT_FALSE(a.client().check_weights(engine::WeightCheck::kReset));
}

TEST_F(AdapterEngineTest, AnAdapterWithWholeModulesIsRefusedByName) {
  base_ = model::load_network(golden_models::directory("llama"), precision());
  SharedEngine shared(over(), config(), 1, clock_);
  const auto trained = over();
  model::load_adapters(*trained,
                       std::string(SLIME_SOURCE_DIR) + "/tests/fixtures/lora/llama/saved_norm");
  EXPECT_THAT(
      [&] { AdapterEngine(shared, "a", *trained, 0); },
      ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr("has whole modules (model.")));
}

TEST_F(AdapterEngineTest, ChecksumsAreThoseOfTheAdapterThatWasPublished) {
  SharedEngine shared(over(), config(), 1, clock_);
  const auto trained = over("patterns");
  AdapterEngine run(shared, "a", *trained, 0);
  const auto engines = run.client().check_weights(engine::WeightCheck::kChecksum);
  ASSERT_TRUE(engines) << engines.error().message;
  EXPECT_EQ(*engines, model::checksums_of(trained->trained()));
}

}  // namespace
}  // namespace slime::roles
