#include "model/whole_weights.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>

#include "comm/parallel_layout.h"
#include "comm/unconnected_group.h"
#include "model/golden_models_for_tests.h"
#include "model/network.h"

namespace slime::model {
namespace {

/// What a rank of so many has of a fixture, with zeros for weights.
struct RankOfSeveral {
  RankOfSeveral(const ModelConfig& config, int rank, int size)
      : mesh(comm::engine_layout(size), rank,
             [&](comm::Axis, const std::vector<int>& members) {
               const bool is_alone = members.size() == 1;
               return std::make_unique<comm::UnconnectedGroup>(is_alone ? 0 : rank,
                                                               static_cast<int>(members.size()));
             }),
        network(make_blank_network(config, Precision::of("float32"), mesh)) {}
  comm::Mesh mesh;
  std::unique_ptr<Network> network;
};

ModelConfig config_of(const std::string& fixture) {
  ModelConfig config = read_model_config(golden_models::directory(fixture));
  config.vocab_size = 317;  // no multiple of two
  return config;
}

class WholeWeights : public ::testing::TestWithParam<const char*> {};

/// The slow twin: each tensor by its name, cut by its slice.
TEST_P(WholeWeights, ARankTakesItsSlicesOfPiecesThatEndAnywhere) {
  const ModelConfig config = config_of(GetParam());
  const auto whole = make_uniform_network(config, Precision::of("float32"), 1);
  const Tensor& whole_N = whole->weights().flat();
  const std::string_view all(static_cast<const char*>(whole_N.data_ptr()), whole_N.nbytes());
  for (const int size : {1, 2}) {
    for (int rank = 0; rank < size; ++rank) {
      RankOfSeveral mine(config, rank, size);
      Weights& own = mine.network->weights();
      ASSERT_EQ(whole_bytes(own), static_cast<int64_t>(all.size()));
      for (std::size_t begin = 0, length = 1; begin < all.size();
           begin += length, length = 1 + (length * 31 + 777) % 5003)
        write_whole_(own, static_cast<int64_t>(begin), all.substr(begin, length));
      std::set<std::string> names;
      for (const NamedWeight& weight : own.tensors()) {
        names.insert(weight.name);
        const auto& tensors = whole->weights().tensors();
        const auto found = std::ranges::find(tensors, weight.name, &NamedWeight::name);
        ASSERT_NE(found, tensors.end()) << weight.name;
        const Tensor expected = weight.slices.of(Weights::view(whole_N, *found));
        EXPECT_TRUE(at::equal(Weights::view(own.flat(), weight), expected)) << weight.name;
      }
      EXPECT_EQ(names.size(), whole->weights().tensors().size());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, WholeWeights,
                         ::testing::ValuesIn(golden_models::kinds(golden_models::divides_by_two)),
                         golden_models::name_of);

}  // namespace
}  // namespace slime::model
