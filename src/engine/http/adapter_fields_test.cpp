#include "engine/http/adapter_fields.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "engine/http/api_error.h"
#include "engine/served_adapters.h"
#include "model/golden_models_for_tests.h"

namespace slime::engine {
namespace {

class AdapterFields : public ::testing::Test {
 protected:
  void load(const char* name, const char* folder) {
    const auto loaded =
        adapters_.load(name, std::string(SLIME_SOURCE_DIR) + "/tests/fixtures/lora/qwen3/" + folder,
                       /*is_pinned=*/false, /*replaces=*/true);
    ASSERT_TRUE(loaded) << loaded.error().message;
  }

  std::unique_ptr<model::Network> network_ =
      model::load_network(golden_models::directory("qwen3"), model::Precision::of("float32"));
  ServedAdapters adapters_{*network_, 2};
  ServedModel model_;
};

TEST_F(AdapterFields, CopiesOfARequestTakeTheVersionThatItFound) {
  model_.adapters = &adapters_;
  load("moving", "qv_r8");
  GenerateRequest request;
  take_adapter_named(model_, "moving", request);
  const ServedAdapters::Handle before = adapters_.find("moving");
  load("moving", "patterns");
  const GenerateRequest sample = request;
  EXPECT_EQ(sample.adapter, "moving");
  EXPECT_EQ(sample.adapter_version, before);
  take_adapter_named(model_, "moving", request);
  EXPECT_EQ(request.adapter_version, adapters_.find("moving"));
  EXPECT_NE(request.adapter_version, before);
}

TEST_F(AdapterFields, AModelMayNameAnAdapterWithOrWithoutTheBase) {
  model_.adapters = &adapters_;
  model_.name = "base";
  load("one", "qv_r8");
  for (const char* word : {"one", "base:one"}) {
    GenerateRequest request;
    take_adapter_of_model(model_, word, request);
    EXPECT_EQ(request.adapter, "one") << word;
    EXPECT_EQ(request.adapter_version, adapters_.find("one")) << word;
    take_adapter_of_model(model_, "base", request);
    EXPECT_EQ(request.adapter, "") << "the last word counts";
    EXPECT_EQ(request.adapter_version, nullptr);
  }
  GenerateRequest request;
  EXPECT_THROW(take_adapter_of_model(model_, "two", request), ApiError);
  EXPECT_THROW(take_adapter_of_model(model_, "base:two", request), ApiError);
}

TEST_F(AdapterFields, WithoutAdaptersAnyModelIsTheServedOne) {
  model_.name = "base";
  GenerateRequest request;
  take_adapter_of_model(model_, "gpt-4", request);
  EXPECT_EQ(request.adapter, "");
  EXPECT_THROW(take_adapter_named(model_, "one", request), ApiError);
}

}  // namespace
}  // namespace slime::engine
