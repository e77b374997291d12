/// Weights that change tensor by tensor.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine_fixture.h"
#include "model/tensor_update.h"

namespace slime {
namespace {

using engine::GenerateRequest;
using engine::GenerateUpdate;
using testing::greedy_request;
using testing::some_tokens;
using testing::TestEngine;

TEST(EngineTensors, SomeTensorsOfTheModelAreChangedAndTheOthersStay) {
  TestEngine bench("qwen3");
  model::Weights& weights = bench.network().weights();
  const at::NoGradGuard no_grad;
  const std::string name = "model.norm.weight", other = "model.layers.0.mlp.up_proj.weight";
  const auto value_of = [&](const std::string& of) {
    const auto found = std::ranges::find(weights.tensors(), of, &model::NamedWeight::name);
    return model::Weights::view(weights.flat(), *found);
  };
  const Tensor before = weights.flat().clone();
  const GenerateRequest request = greedy_request(some_tokens(9), 4);
  const GenerateUpdate old = bench.generate(request);
  model::TensorUpdate update{{{name, value_of(name) * 0.5}}};
  const auto bring = [&](WeightVersion version) {
    return bench.engine().update_weights(
        {.version = version, .source = engine::FromTensors{&update}});
  };
  ASSERT_TRUE(bring(1));
  EXPECT_NE(bench.generate(request).output_log_probs, old.output_log_probs);
  update.tensors = {{other, value_of(other) * 2}};
  ASSERT_TRUE(bring(2));
  Tensor expected = before.clone();
  const auto in_expected = [&](const std::string& of) {
    const auto found = std::ranges::find(weights.tensors(), of, &model::NamedWeight::name);
    return model::Weights::view(expected, *found);
  };
  in_expected(name).mul_(0.5);
  in_expected(other).mul_(2);
  EXPECT_TRUE(at::equal(weights.flat(), expected)) << "both buckets are there, and nothing else";
  // All or nothing.
  update.tensors = {{name, value_of(name) * 3}, {"model.norm.wait", at::ones({1})}};
  const Expected<void> refused = bring(3);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("no tensor model.norm.wait"), std::string::npos);
  EXPECT_EQ(bench.engine().weight_version(), 2);
  update.tensors = {{name, at::full_like(value_of(name), NAN)}};
  EXPECT_FALSE(bring(3));
  EXPECT_TRUE(at::equal(weights.flat(), expected));
  const auto rows = bench.engine().read_weight(other, 2);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->shape, (std::vector<int64_t>{2, value_of(other).size(1)}));
  EXPECT_EQ(rows->values[1], value_of(other)[0][1].item<float>());
  EXPECT_FALSE(bench.engine().read_weight("nothing", 2));
}

}  // namespace
}  // namespace slime
