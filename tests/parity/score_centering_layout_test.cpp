// Score centering on every layout: loss and gradient are those of one rank, with and without shared prefixes.

#include "layout_cases.h"
#include "score_centering_cases.h"

namespace slime::parity {
namespace {

constexpr int64_t kVocabulary = 320, kWidth = 7;

void make_model(const std::filesystem::path& directory, const char* like) {
  model::ModelConfig config = model::read_model_config(kModels + like);
  config.raw = {};
  config.num_layers = 4;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = config.rotary_dim = 16;
  config.window.assign(4, 0);
  at::manual_seed(3);
  model::save_network(*model::make_uniform_network(config, model::Precision::of("float32"), 0.25),
                      directory);
}

const std::vector<ParallelLayout> kLayouts{
    {.tp = 2},
    {.tp = 2, .sequence_parallel = true},
    {.cp = 2},
    {.cp = 2, .contiguous_context = true},
    {.dp = 2, .cp = 2},
    {.pp = 2},
    {.tp = 2, .pp = 2, .cp = 2, .sequence_parallel = true},
};

TrainBatch batch_of(bool lists_support) {
  const auto made_up = made_up_groups(3, 4, kVocabulary);
  return make_train_batch(lists_support ? groups_with_supports(made_up, kVocabulary)
                                        : groups_with_heads(made_up, kWidth, kVocabulary),
                          {});
}

class CenteredLayouts : public ::testing::TestWithParam<bool> {};

TEST_P(CenteredLayouts, AreThoseOfOneRank) {
  const Scratch model;
  make_model(model.path, "qwen3");
  const TrainConfig config = with_batching(centering_config(GetParam(), kWidth), 12, 50);
  expect_layout_invariant(model.path, batch_of(GetParam()), config, kLayouts);
}

TEST_P(CenteredLayouts, AreThoseOfPlainSequencesToo) {
  const Scratch model;
  make_model(model.path, "gemma2");  // with capped logits
  TrainConfig config = with_batching(centering_config(GetParam(), kWidth), 12, 200);
  const WholeOutcome forest = gradients(model.path, batch_of(GetParam()), config, {});
  config.packing = {false, 1};
  expect_same(gradients(model.path, batch_of(GetParam()), config, {}), forest);
  EXPECT_NE(forest.sums.at("sc_correction"), 0);
}

INSTANTIATE_TEST_SUITE_P(SupportsAndHeads, CenteredLayouts, ::testing::Bool());

}  // namespace
}  // namespace slime::parity
