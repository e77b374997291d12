#include "roles/networks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace slime::roles
