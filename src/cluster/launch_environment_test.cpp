#include "cluster/launch_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "core/error.h"

namespace slime::cluster {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

using Settings = std::map<std::string, std::string>;

std::optional<LaunchPlace> place_of(const Settings& settings) {
  return launch_place([&](const char* name) -> std::optional<std::string> {
    const auto found = settings.find(name);
    if (found == settings.end() || found->second.empty()) return std::nullopt;
    return found->second;
  });
}

struct Row {
  std::string name;
  Settings settings;
  LaunchPlace place;
};

class LaunchRow : public testing::TestWithParam<Row> {};

TEST_P(LaunchRow, SaysWhichProcessThisIs) {
  const std::optional<LaunchPlace> place = place_of(GetParam().settings);
  ASSERT_TRUE(place.has_value());
  const LaunchPlace& wanted = GetParam().place;
  EXPECT_EQ(place->launcher, wanted.launcher);
  EXPECT_EQ(place->rank, wanted.rank);
  EXPECT_EQ(place->local_rank, wanted.local_rank);
  EXPECT_EQ(place->num_nodes, wanted.num_nodes);
  EXPECT_EQ(place->address, wanted.address);
  EXPECT_EQ(place->port, wanted.port);
  EXPECT_EQ(place->has_agent_store, wanted.has_agent_store);
  EXPECT_EQ(place->num_restarts, wanted.num_restarts);
}

INSTANTIATE_TEST_SUITE_P(Launchers, LaunchRow,
                         testing::Values(Row{.name = "Own",
                                             .settings = {{"SLIME_NODE_RANK", "1"},
                                                          {"SLIME_NUM_NODES", "2"},
                                                          {"SLIME_MASTER_ADDR", "10.0.0.1"},
                                                          {"SLIME_MASTER_PORT", "4711"},
                                                          {"RANK", "7"},
                                                          {"WORLD_SIZE", "8"}},
                                             .place = {.launcher = "SLIME_NODE_RANK",
                                                       .rank = 1,
                                                       .num_nodes = 2,
                                                       .address = "10.0.0.1",
                                                       .port = 4711}},
                                         Row{.name = "Torchrun",
                                             .settings = {{"RANK", "9"},
                                                          {"LOCAL_RANK", "1"},
                                                          {"WORLD_SIZE", "16"},
                                                          {"LOCAL_WORLD_SIZE", "8"},
                                                          {"GROUP_RANK", "1"},
                                                          {"MASTER_ADDR", "head"},
                                                          {"MASTER_PORT", "29400"},
                                                          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                          {"TORCHELASTIC_RESTART_COUNT", "3"}},
                                             .place = {.launcher = "torchrun",
                                                       .rank = 9,
                                                       .local_rank = 1,
                                                       .num_nodes = 2,
                                                       .address = "head",
                                                       .port = 29400,
                                                       .has_agent_store = true,
                                                       .num_restarts = 3}},
                                         Row{.name = "PyTorchJob",
                                             .settings = {{"RANK", "0"},
                                                          {"WORLD_SIZE", "3"},
                                                          {"MASTER_ADDR", "job-master-0"},
                                                          {"MASTER_PORT", "23456"}},
                                             .place = {.launcher = "torchrun",
                                                       .rank = 0,
                                                       .num_nodes = 3,
                                                       .address = "job-master-0",
                                                       .port = 23456}},
                                         Row{.name = "Slurm",
                                             .settings = {{"SLURM_PROCID", "8"},
                                                          {"SLURM_LOCALID", "0"},
                                                          {"SLURM_NTASKS", "16"},
                                                          {"SLURM_NNODES", "4"},
                                                          {"SLURM_STEP_NUM_NODES", "2"},
                                                          {"SLURM_JOB_NODELIST", "gpu[001-004]"},
                                                          {"SLURM_STEP_NODELIST", "gpu[003-004]"},
                                                          {"SLURM_JOB_ID", "1234567"},
                                                          {"SLURM_RESTART_COUNT", "1"}},
                                             .place = {.launcher = "Slurm",
                                                       .rank = 8,
                                                       .num_nodes = 2,
                                                       .address = "gpu003",
                                                       .port = 24567,
                                                       .num_restarts = 1}},
                                         Row{.name = "OpenMpi",
                                             .settings = {{"OMPI_COMM_WORLD_RANK", "4"},
                                                          {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                                          {"OMPI_COMM_WORLD_SIZE", "8"},
                                                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                                          {"MASTER_ADDR", "10.1.1.1"}},
                                             .place = {.launcher = "mpirun",
                                                       .rank = 4,
                                                       .num_nodes = 2,
                                                       .address = "10.1.1.1",
                                                       .port = 29500}},
                                         Row{.name = "Mpich",
                                             .settings = {{"PMI_RANK", "1"},
                                                          {"PMI_SIZE", "2"},
                                                          {"MASTER_ADDR", "10.1.1.1"},
                                                          {"MASTER_PORT", "9999"}},
                                             .place = {.launcher = "mpirun",
                                                       .rank = 1,
                                                       .num_nodes = 2,
                                                       .address = "10.1.1.1",
                                                       .port = 9999}},
                                         Row{.name = "LeaderWorkerSet",
                                             .settings = {{"LWS_WORKER_INDEX", "2"},
                                                          {"LWS_GROUP_SIZE", "4"},
                                                          {"LWS_LEADER_ADDRESS",
                                                           "engine-0.engine.default"}},
                                             .place = {.launcher = "LeaderWorkerSet",
                                                       .rank = 2,
                                                       .num_nodes = 4,
                                                       .address = "engine-0.engine.default",
                                                       .port = 29500}},
                                         Row{.name = "IndexedJob",
                                             .settings = {{"JOB_COMPLETION_INDEX", "1"},
                                                          {"MASTER_ADDR", "train-0.train"},
                                                          {"JOBSET_RESTART_ATTEMPT", "2"}},
                                             .place = {.launcher = "Kubernetes",
                                                       .rank = 1,
                                                       .num_nodes = std::nullopt,
                                                       .address = "train-0.train",
                                                       .port = 29500,
                                                       .num_restarts = 2}}),
                         [](const auto& row) { return row.param.name; });

TEST(LaunchEnvironment, AProcessThatIsAloneHasNoPlace) {
  EXPECT_FALSE(place_of({}));
  EXPECT_FALSE(place_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "here"}}));
  EXPECT_FALSE(place_of({{"SLURM_JOB_ID", "7"},
                         {"SLURM_PROCID", "0"},
                         {"SLURM_LOCALID", "0"},
                         {"SLURM_NNODES", "1"},
                         {"SLURM_JOB_NODELIST", "gpu1"}}));
  // Pods of an indexed job that have nothing to do with one another.
  EXPECT_FALSE(place_of({{"JOB_COMPLETION_INDEX", "3"}}));
}

TEST(LaunchEnvironment, OneHostOfManyProcessesHasOneThatLeads) {
  Settings settings{{"OMPI_COMM_WORLD_RANK", "0"},
                    {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                    {"OMPI_COMM_WORLD_SIZE", "4"},
                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
  EXPECT_FALSE(place_of(settings)) << "the first is alone: it starts the workers";
  settings["OMPI_COMM_WORLD_RANK"] = settings["OMPI_COMM_WORLD_LOCAL_RANK"] = "3";
  ASSERT_TRUE(place_of(settings));
  EXPECT_FALSE(place_of(settings)->leads_its_node());
}

TEST(LaunchEnvironment, WhatLacksOrContradictsIsNamedWithItsLauncher) {
  const auto refused = [](const Settings& settings, const char* words) {
    EXPECT_THAT([&] { place_of(settings); }, ThrowsMessage<ConfigError>(HasSubstr(words)));
  };
  refused({{"RANK", "1"}, {"WORLD_SIZE", "2"}}, "started by torchrun: MASTER_ADDR is not set");
  refused({{"RANK", "x1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}},
          "started by torchrun: RANK=x1: should be a whole number");
  refused({{"RANK", "1"}, {"WORLD_SIZE", "7"}, {"LOCAL_WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}},
          "WORLD_SIZE=7 is no multiple of LOCAL_WORLD_SIZE=4");
  refused({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}},
          "MASTER_PORT=70000");
  refused({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, "mpirun -x MASTER_ADDR=HOST");
  refused({{"SLURM_PROCID", "1"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_ID", "5"}},
          "start the command with srun");
  refused({{"SLIME_NODE_RANK", "1"}}, "SLIME_MASTER_ADDR is not set");
}

TEST(LaunchEnvironment, TheFirstHostOfSlurmsLists) {
  EXPECT_EQ(first_slurm_host("gpu7"), "gpu7");
  EXPECT_EQ(first_slurm_host("gpu7,gpu9"), "gpu7");
  EXPECT_EQ(first_slurm_host("gpu[007-012,020]"), "gpu007");
  EXPECT_EQ(first_slurm_host("rack[1-2]n[03,07],gpu5"), "rack1n03");
  EXPECT_EQ(first_slurm_host("a[3]b,c"), "a3b");
  EXPECT_THROW(first_slurm_host("gpu[1-2"), ConfigError);
}

}  // namespace
}  // namespace slime::cluster
