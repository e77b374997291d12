#include "roles/networks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "model/adapters.h"
#include "model/golden_models_for_tests.h"
#include "model/network.h"

namespace slime::roles {
namespace {

TEST(Networks, ABlankCopyHasTheConstantsOfItsModel) {
  const auto precision = model::Precision::of("float32");
  const auto network = model::load_network("tests/fixtures/models/kimi_k2", precision);
  const auto copy = make_blank_copy(*network, precision);
  const auto& constants = network->weights().constants();
  ASSERT_FALSE(constants.empty());
  ASSERT_EQ(copy->weights().constants().size(), constants.size());
  for (std::size_t i = 0; i < constants.size(); ++i) {
    EXPECT_GT(constants[i].value.abs().max().item<float>(), 0) << constants[i].name;
    EXPECT_TRUE(copy->weights().constants()[i].value.equal(constants[i].value));
  }
  EXPECT_EQ(copy->weights().flat().abs().max().item<float>(), 0);
}

TEST(Networks, TheOldActorOfAnAdapterIsNoSecondModel) {
  const auto precision = model::Precision::of("float32");
  const auto network = model::load_network(golden_models::directory("qwen3"), precision);
  model::AdapterConfig adapter;
  adapter.targets = {"q_proj"};
  model::add_adapters(*network, model::form_of(adapter, network->config()));
  config::RunConfig config;
  config.hf_checkpoint = std::string(golden_models::directory("qwen3"));
  config.keep_old_actor = true;
  config.lora_rank = 8;
  const train::OtherNetworks others =
      load_other_networks(config, *network, precision, comm::Mesh::single());
  ASSERT_NE(others.old_actor, nullptr);
  EXPECT_TRUE(others.old_actor->weights().flat().is_alias_of(network->weights().flat()));
  EXPECT_EQ(others.old_actor->trained().num_elements(), network->trained().num_elements());
  EXPECT_FALSE(others.old_actor->trained().flat().is_alias_of(network->trained().flat()));
}

}  // namespace
}  // namespace slime::roles
