#include "model/pipeline_layers.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace slime::model {
namespace {

using Ranges = std::vector<LayerRange>;

TEST(PipelineLayers, AreCutInTheirOrder) {
  EXPECT_EQ(layers_of_stage({}, 0, 5), (Ranges{{0, 5}}));
  EXPECT_EQ(layers_of_stage({.pp = 2}, 1, 6), (Ranges{{3, 6}}));
  EXPECT_EQ(layers_of_stage({.pp = 2, .chunks = 2}, 0, 8), (Ranges{{0, 2}, {4, 6}}));
  EXPECT_EQ(layers_of_stage({.pp = 2, .chunks = 2}, 1, 8), (Ranges{{2, 4}, {6, 8}}));
}

TEST(PipelineLayers, OfTheFirstAndTheLastRangeCanBeGiven) {
  const comm::ParallelLayout layout{.pp = 3, .first_layers = 1, .last_layers = 3};
  EXPECT_EQ(layers_of_stage(layout, 0, 8), (Ranges{{0, 1}}));
  EXPECT_EQ(layers_of_stage(layout, 1, 8), (Ranges{{1, 5}}));
  EXPECT_EQ(layers_of_stage(layout, 2, 8), (Ranges{{5, 8}}));
  EXPECT_EQ(layers_of_stage({.pp = 2, .first_layers = 5, .last_layers = 3}, 1, 8),
            (Ranges{{5, 8}}));
  EXPECT_EQ(layers_of_stage({.pp = 2, .chunks = 2, .last_layers = 2}, 1, 8),
            (Ranges{{2, 4}, {6, 8}}));
}

TEST(PipelineLayers, ThatDoNotDivideAreRefused) {
  EXPECT_THROW(layers_of_stage({.pp = 2}, 0, 7), ConfigError);
  EXPECT_THROW(layers_of_stage({.pp = 8}, 0, 4), ConfigError);
  EXPECT_THROW(layers_of_stage({.pp = 2, .first_layers = 8}, 0, 8), ConfigError);
  EXPECT_THROW(layers_of_stage({.pp = 2, .first_layers = 5, .last_layers = 2}, 0, 8), ConfigError);
}

}  // namespace
}  // namespace slime::model
