/// A pass that wants some rows alone gives what a pass of all rows gives for them.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <string>

#include "fixture_models.h"
#include "model/router_pass.h"

namespace slime {
namespace {

class WantedRows : public ::testing::TestWithParam<const char*> {};

TEST_P(WantedRows, AreThoseOfAPassOfAllRows) {
  const at::NoGradGuard no_grad;
  const auto network =
      model::load_network(golden_models::directory(GetParam()), model::Precision::of("float32"));
  const model::ModelConfig& config = network->config();
  model::TokenBatch batch = testing::pack({{1, 5, 9, 2, 40, 41, 42, 43}, {7, 7, 8}});
  const auto forward = [&](const Tensor& wanted_R, model::RouterPass* routers) {
    batch.wanted_R = wanted_R;
    batch.routers = routers;
    model::TreeAttention attention(batch);
    return network->forward(batch, attention);
  };
  const Tensor all_TH = forward({}, nullptr);
  ASSERT_EQ(all_TH.size(0), 11);
  const auto expect_rows = [&](const std::vector<int64_t>& rows, model::RouterPass* routers) {
    const Tensor wanted_R = at::tensor(rows, at::kLong);
    const Tensor some_RH = forward(wanted_R, routers);
    EXPECT_EQ(some_RH.sizes(), at::IntArrayRef({wanted_R.size(0), config.hidden_size}));
    // Products of fewer rows may add up in another order.
    EXPECT_TRUE(some_RH.allclose(all_TH.index_select(0, wanted_R), 1e-4, 1e-5));
  };
  expect_rows({7, 10}, nullptr);
  expect_rows({10, 0, 3, 3}, nullptr);
  expect_rows({}, nullptr);
  if (!config.has_experts()) return;
  const auto record = [&] {
    model::RouterPass routers;
    routers.num_rows = 11;
    routers.made_YTK = at::full({config.num_layers, 11, config.experts.per_token}, -1, at::kShort);
    return routers;
  };
  model::RouterPass whole = record(), some = record(), none = record();
  forward({}, &whole);
  expect_rows({7, 10}, &some);
  expect_rows({}, &none);
  EXPECT_GE(whole.made_YTK.select(0, config.num_layers - 1).min().item<int64_t>(), 0);
  EXPECT_TRUE(some.made_YTK.equal(whole.made_YTK)) << "of all rows, wanted or not";
  EXPECT_TRUE(none.made_YTK.equal(whole.made_YTK));
}

INSTANTIATE_TEST_SUITE_P(Models, WantedRows, ::testing::ValuesIn(golden_models::kinds()),
                         golden_models::name_of);

}  // namespace
}  // namespace slime
