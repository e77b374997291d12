#include "engine/served_adapters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/golden_models_for_tests.h"

namespace slime::engine {
namespace {

class ServedAdaptersTest : public ::testing::Test {
 protected:
  std::unique_ptr<model::Network> network_ =
      model::load_network(golden_models::directory("qwen3"), model::Precision::of("float32"));

  static std::string folder(const char* name) {
    return std::string(SLIME_SOURCE_DIR) + "/tests/fixtures/lora/qwen3/" + name;
  }
  static void load(ServedAdapters& adapters, const char* name, bool is_pinned = false,
                   bool replaces = false) {
    const auto loaded = adapters.load(name, folder("qv_r8"), is_pinned, replaces);
    ASSERT_TRUE(loaded) << loaded.error().message;
  }
};

TEST_F(ServedAdaptersTest, TheOneUsedLongestAgoGoesForAnother) {
  ServedAdapters adapters(*network_, 2);
  load(adapters, "a");
  load(adapters, "b");
  EXPECT_NE(adapters.find("a"), nullptr);  // is used
  load(adapters, "c");
  EXPECT_EQ(adapters.find("b"), nullptr);
  EXPECT_EQ(adapters.names(), "a, c");
}

TEST_F(ServedAdaptersTest, PinnedOnesAndThoseInUseStay) {
  ServedAdapters adapters(*network_, 2);
  load(adapters, "pinned", true);
  load(adapters, "running");
  const ServedAdapters::Handle request = adapters.find("running");
  const auto refused = adapters.load("more", folder("qv_r8"), false, false);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("--max-loaded-loras"));
}

TEST_F(ServedAdaptersTest, ANameThatIsLoadedAgainIsAnotherVersion) {
  ServedAdapters adapters(*network_, 2);
  load(adapters, "a");
  const ServedAdapters::Handle before = adapters.find("a");
  EXPECT_FALSE(adapters.load("a", folder("patterns"), false, false));
  load(adapters, "a", false, true);
  const ServedAdapters::Handle after = adapters.find("a");
  EXPECT_NE(after->number, before->number);
  EXPECT_NE(after->slot, before->slot);  // a request may still compute with the first
  EXPECT_NE(network_->adapters()->at(before->slot), nullptr);
}

TEST_F(ServedAdaptersTest, WholeModulesAreRefusedByName) {
  const auto network =
      model::load_network(golden_models::directory("llama"), model::Precision::of("float32"));
  ServedAdapters adapters(*network, 2);
  const auto refused = adapters.load(
      "a", std::string(SLIME_SOURCE_DIR) + "/tests/fixtures/lora/llama/saved_norm", false, false);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("input_layernorm.weight"));
}

}  // namespace
}  // namespace slime::engine
