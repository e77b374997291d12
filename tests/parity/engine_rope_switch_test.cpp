/// A sequence that grows beyond the original positions of longrope: the engine draws what transformers
/// draws, and the trainer scores each token as it was sampled (docs/decisions/0095-rope-kinds.md).

#include "rope_switch_fixture.h"

namespace slime {
namespace {

using testing::TestEngine;

class EngineRopeSwitch : public testing::RopeSwitch {};

TEST_F(EngineRopeSwitch, DrawsWhatTransformersDraws) {
  TestEngine bench(network(), {});
  expect_what_transformers_samples(bench, 3e-4);
}

TEST_F(EngineRopeSwitch, TheTrainerScoresEachTokenAsItWasSampled) {
  TestEngine bench(network(), {});
  for (const std::size_t length : {20, 90, 95, 96, 97, 120})
    expect_scores_as_sampled(bench, length, 3e-4);
}

}  // namespace
}  // namespace slime
