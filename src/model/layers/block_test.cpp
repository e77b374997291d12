// What blocks tell of themselves, and their fast path in decode.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "model/chaining_for_tests.h"
#include "model/golden_models_for_tests.h"
#include "model/network.h"
#include "model/tree_attention.h"

namespace slime::model {
namespace {

std::unique_ptr<Network> load(const std::string& name, const std::string& dtype = "float32") {
  const auto models = std::filesystem::path(SLIME_SOURCE_DIR) / "tests/fixtures/models";
  return load_network(models / name, Precision::of(dtype));
}

TokenBatch some_tokens() {
  TokenBatch batch;
  batch.ids_T = at::tensor({5, 6, 7, 8, 9, 100, 2, 1}, at::kLong);
  batch.rotary_row_T = at::tensor({0, 1, 2, 3, 4, 0, 1, 2}, at::kLong);
  batch.segments = {{0, 5, -1}, {5, 8, -1}};
  return batch;
}

class EachFamily : public ::testing::TestWithParam<const char*> {};

TEST_P(EachFamily, TellsTheParametersThatItRegisters) {
  const auto network = load(GetParam());
  const ModelConfig& config = network->config();
  const int64_t table = config.vocab_size * config.hidden_size;
  int64_t told = (config.ties_embeddings ? 1 : 2) * table + config.hidden_size;
  for (const BlockNeeds& block : network->blocks()) told += block.costs.parameters;
  EXPECT_EQ(told, network->weights().num_parameters());
}

TEST_P(EachFamily, ComputesTheSameInAChainOfBlocks) {
  const at::NoGradGuard no_grad;
  const auto network = load(GetParam());
  const TokenBatch batch = some_tokens();
  TreeAttention plain(batch);
  const Tensor expected = network->forward(batch, plain);
  Chaining chaining(batch);
  EXPECT_TRUE(network->forward(batch, chaining).equal(expected));
  // Between two attentions fit a norm before each layer, of the weight itself, and a feed-forward layer
  // with plain experts, or none.
  const ModelConfig& config = network->config();
  const ExpertsConfig& experts = config.experts;
  const bool has_chain = config.norms.after_mixer.empty() && !config.norms_add_one &&
                         !golden_models::has_indexers(config) &&
                         !golden_models::has_delta_nets(config) && !experts.has_shared_gate &&
                         !experts.has_router_bias && experts.num_groups == 1;
  EXPECT_EQ(chaining.asked, has_chain ? static_cast<int>(network->blocks().size()) : 0);
}

INSTANTIATE_TEST_SUITE_P(Models, EachFamily, ::testing::ValuesIn(golden_models::all()),
                         golden_models::name_of);

/// Zero weights of a fixture's shape.
std::unique_ptr<Network> blank(const std::string& name,
                               const comm::Mesh& mesh = comm::Mesh::single()) {
  const auto models = std::filesystem::path(SLIME_SOURCE_DIR) / "tests/fixtures/models";
  return make_blank_network(read_model_config(models / name), Precision::of("float32"), mesh);
}

TEST(DecoderBlock, OfAGatedDeltaNetTellsItsState) {
  const auto network = blank("qwen3_next");
  const BlockNeeds &delta = network->blocks()[0], &attention = network->blocks()[3];
  EXPECT_EQ(delta.mixer,
            "gated delta net, 4 value heads of 16 x 16, 2 key heads, convolution of 4");
  // Four heads of 16 x 16, and three tokens of 64 + 64 channels, float32.
  EXPECT_EQ(delta.cache, (CacheSpec{.state_bytes = (4 * 16 * 16 + 3 * 128) * 4}));
  EXPECT_EQ(attention.mixer, "4 query, 2 key-value, size 32, q/k norm, gated");
  EXPECT_EQ(attention.cache.state_bytes, 0);
  EXPECT_EQ(attention.cache.numbers_per_token(), 2 * 2 * 32);
}

TEST(DecoderBlock, TellsWhatItsMixerKeepsInTheCache) {
  const BlockNeeds block = load("qwen3")->blocks().front();
  EXPECT_EQ(block.cache,
            (CacheSpec{.heads = 2, .queries_per_head = 2, .key_size = 32, .value_size = 32}));
  EXPECT_EQ(block.cache.numbers_per_token(), 2 * 2 * 32);
  EXPECT_EQ(block.mixer, "4 query, 2 key-value, size 32, q/k norm");
}

TEST(DecoderBlock, KeepsOneLatentForAllHeads) {
  const BlockNeeds block = load("kimi_k2")->blocks().front();
  EXPECT_EQ(block.cache.heads, 1);
  EXPECT_EQ(block.cache.queries_per_head, 4);
  EXPECT_EQ(block.cache.numbers_per_token(), 16 + 8);
  EXPECT_EQ(block.mixer, "4 heads of 16 + 8, latent 16");
}

TEST(DecoderBlock, TellsWhichLayersHaveExpertsAndWhatATokenCostsThere) {
  const auto network = load("qwen2_moe");
  const auto blocks = network->blocks();
  EXPECT_EQ(blocks[0].feed_forward, "4 of 8 experts 8, shared 24");
  EXPECT_EQ(blocks[1].feed_forward, "feed-forward 56");
  // H 40: four experts of 8 and a shared one of 24, as wide as 56 together.
  EXPECT_EQ(blocks[0].costs.flops_per_token, blocks[1].costs.flops_per_token);
}

}  // namespace
}  // namespace slime::model
