#include "cluster/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slime::cluster {
namespace {

using testing::HasSubstr;

TEST(WorkerPlacement, OneNodeHasRoomForAll) {
  const Placement placement{.num_ranks = 3, .num_engines = 2, .has_devices = true};
  EXPECT_EQ(placement.of_rank(2), (WorkerPlace{.node = 0, .device = 2}));
  EXPECT_EQ(placement.of_engine(1), (WorkerPlace{.node = 0, .device = 4}));
  EXPECT_EQ(placement.problem(), "");
  EXPECT_EQ(placement.most_ranks_of_a_node(), 3);
  EXPECT_EQ(placement.most_engines_of_a_node(), 2);
}

TEST(WorkerPlacement, PlacesGoOnFromNodeToNode) {
  const Placement placement{.num_nodes = 2,
                            .places_per_node = 4,
                            .num_ranks = 6,
                            .num_engines = 1,
                            .places_per_engine = 2,
                            .has_devices = true};
  EXPECT_EQ(placement.of_rank(5), (WorkerPlace{.node = 1, .device = 1}));
  EXPECT_EQ(placement.of_engine(0), (WorkerPlace{.node = 1, .device = 2, .num_devices = 2}));
  EXPECT_EQ(placement.of_engine(0, 1), (WorkerPlace{.node = 1, .device = 3}));
  EXPECT_EQ(placement.most_ranks_of_a_node(), 4);
  EXPECT_EQ(placement.most_engines_of_a_node(), 1);
  EXPECT_EQ(placement.problem(), "");
}

TEST(WorkerPlacement, WhatDoesNotFitIsExplained) {
  Placement placement{.num_nodes = 2, .places_per_node = 2, .num_ranks = 3, .num_engines = 2};
  EXPECT_THAT(placement.problem(), HasSubstr("needs 5 places"));
  EXPECT_THAT(placement.problem(), HasSubstr("2 nodes with 2 each (--num-gpus-per-node) have 4"));
  placement.num_engines = 1;
  EXPECT_EQ(placement.problem(), "");
  placement = {.num_nodes = 3,
               .places_per_node = 2,
               .num_ranks = 1,
               .num_engines = 2,
               .places_per_engine = 2};
  EXPECT_THAT(placement.problem(), HasSubstr("engine 0 would lie on two nodes"));
}

}  // namespace
}  // namespace slime::cluster
