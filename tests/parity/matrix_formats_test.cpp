// Golden models whose matrices are stored in another format: they compute as plain models with the
// numbers that the codes mean, and an engine has them made when weights are published.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "engine_fixture.h"
#include "kernels/gpu/for_tests.h"
#include "kernels/matrix_formats.h"

namespace slime {
namespace {

using kernels::MatrixFormat;
using testing::TestEngine;

const model::Precision kPlain{.weights = at::kFloat, .activations = at::kFloat};
model::Precision stored_as(MatrixFormat format) {
  return {.weights = at::kFloat, .activations = at::kFloat, .matrices = format};
}
const model::Precision kBlocks = stored_as(MatrixFormat::kFp8Blocks);

Tensor logits_of(model::Network& network, const model::TokenBatch& batch) {
  const at::NoGradGuard no_grad;
  model::TreeAttention attention(batch);
  return network.logits(network.forward(batch, attention));
}

class FormattedModel : public ::testing::TestWithParam<const char*> {};

TEST_P(FormattedModel, HasTheLogitsOfItsNumbersInEachFormat) {
  const testing::FixtureModel fixture(GetParam());
  const model::TokenBatch batch = testing::pack(fixture.sequences());
  for (const kernels::FormatRow& format : kernels::matrix_formats()) {
    const auto plain = model::load_network(fixture.directory, kPlain),
               stored = model::load_network(fixture.directory, stored_as(format.format));
    ASSERT_TRUE(stored->weights().has_formats());
    const Tensor trained_TV = logits_of(*plain, batch), stored_TV = logits_of(*stored, batch);
    plain->weights().copy_from(stored->weights());
    EXPECT_TRUE(stored_TV.equal(logits_of(*plain, batch))) << format.word;
    EXPECT_FALSE(stored_TV.equal(trained_TV)) << format.word << ": nothing was rounded";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, FormattedModel, ::testing::ValuesIn(golden_models::all()),
                         golden_models::name_of);

/// Greedy and sampled answers with their log-probs.
std::vector<engine::GenerateUpdate> answers_of(TestEngine& bench) {
  std::vector<engine::GenerateUpdate> answers;
  for (int i = 0; i < 2; ++i) {
    answers.push_back(bench.generate(testing::greedy_request(testing::some_tokens(20, i), 16)));
    answers.push_back(
        bench.generate(testing::sampled_request(testing::some_tokens(40, i), 16, 100 + i)));
  }
  return answers;
}

void expect_same_answers(TestEngine& a, TestEngine& b) {
  const auto of_a = answers_of(a), of_b = answers_of(b);
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    EXPECT_EQ(of_a[i].output_ids.size(), 16U);
    EXPECT_EQ(of_a[i].output_ids, of_b[i].output_ids);
    EXPECT_EQ(of_a[i].output_log_probs, of_b[i].output_log_probs);
  }
}

class FormattedEngine : public ::testing::TestWithParam<const char*> {};

/// The trainer's network is plain; the engine's holds codes, which each update makes of its numbers.
TEST_P(FormattedEngine, GeneratesWithWhatIsPublished) {
  const auto directory = golden_models::directory(GetParam());
  const auto trained = model::load_network(directory, kPlain);
  TestEngine stored(model::make_blank_network(trained->config(), kBlocks), {}),
      numbers(model::load_network(directory, kPlain), {});
  for (const WeightVersion version : {1, 2}) {
    if (version == 2) Tensor(trained->weights().flat()).mul_(1.25);  // training went on
    ASSERT_TRUE(stored.engine().update_weights(
        {.version = version,
         .source = engine::FromNetwork{.network = trained.get(), .delta = nullptr}}));
    numbers.network().weights().copy_from(stored.network().weights());
    ASSERT_TRUE(numbers.engine().update_weights({.version = version}));
    expect_same_answers(stored, numbers);
  }
  // From a checkpoint, as from a network.
  ASSERT_TRUE(
      stored.engine().update_weights({.version = 3, .source = engine::FromDirectory{directory}}));
  numbers.network().weights().copy_from(model::load_network(directory, kBlocks)->weights());
  ASSERT_TRUE(numbers.engine().update_weights({.version = 3}));
  expect_same_answers(stored, numbers);
}

INSTANTIATE_TEST_SUITE_P(Models, FormattedEngine,
                         ::testing::Values("qwen2", "qwen3", "qwen3_moe", "phi3", "deepseek_v3"),
                         [](const auto& info) { return std::string(info.param); });

TEST(FormattedEngine, KeepsItsWeightsInViewOfChecks) {
  TestEngine bench("qwen3", {}, kBlocks);
  ASSERT_TRUE(bench.engine().check_weights(engine::WeightCheck::kSnapshot));
  ASSERT_TRUE(bench.engine().check_weights(engine::WeightCheck::kCompare));
  ASSERT_TRUE(bench.engine().check_weights(engine::WeightCheck::kReset));
  EXPECT_FALSE(bench.engine().check_weights(engine::WeightCheck::kCompare));
}

/// Before the run, and before memory is taken.
TEST(FormattedModel, IsRefusedByNameOnADeviceWithoutProductsOfItsFormat) {
  SLIME_NEEDS_GPU();
  model::Precision precision = model::Precision::on_gpu("bfloat16");
  precision.matrices = MatrixFormat::kFp8Blocks;
  try {
    model::load_network(golden_models::directory("qwen3"), precision);
    FAIL() << "a GPU has products of codes now: compare them with the CPU's";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("model.layers.0.self_attn.q_proj.weight"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("fp8-blocks"));
  }
}

}  // namespace
}  // namespace slime
