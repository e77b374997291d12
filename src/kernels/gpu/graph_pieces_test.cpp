/// Splits of CUDA graphs: lengths of pieces, and dependencies.

#include "kernels/gpu/graph_pieces.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace slime::kernels {
namespace {

using Pieces = std::vector<std::vector<int64_t>>;

std::vector<GraphEdge> chain_of(int64_t num_nodes) {
  std::vector<GraphEdge> edges;
  for (int64_t node = 1; node < num_nodes; ++node) edges.push_back({node - 1, node});
  return edges;
}

std::vector<int64_t> lengths_of(int64_t num_nodes) {
  std::vector<int64_t> lengths;
  for (const auto& piece : graph_pieces(num_nodes, chain_of(num_nodes)))
    lengths.push_back(std::ssize(piece));
  return lengths;
}

TEST(GraphPieces, EachIsTwiceAsLongAsTheOneBefore) {
  EXPECT_EQ(lengths_of(0), std::vector<int64_t>{});
  EXPECT_EQ(lengths_of(1), std::vector<int64_t>{1});
  EXPECT_EQ(lengths_of(16), std::vector<int64_t>{16});
  EXPECT_EQ(lengths_of(17), (std::vector<int64_t>{16, 1}));
  EXPECT_EQ(lengths_of(48), (std::vector<int64_t>{16, 32}));
  EXPECT_EQ(lengths_of(112), (std::vector<int64_t>{16, 32, 64}));
  EXPECT_EQ(lengths_of(340), (std::vector<int64_t>{16, 32, 64, 128, 100}));
}

/// Two chains that meet, nodes in the opposite order of their edges: 2k needs 2k + 2, 2k + 1 needs 2k + 3.
TEST(GraphPieces, NoNodeNeedsOneOfALaterPiece) {
  constexpr int64_t kNodes = 101;
  std::vector<GraphEdge> edges;
  for (int64_t node = 2; node < kNodes; ++node) edges.push_back({node, node - 2});
  edges.push_back({1, 0});
  const Pieces pieces = graph_pieces(kNodes, edges);
  std::vector<int64_t> piece_of(kNodes, -1);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    for (const int64_t node : pieces[i]) {
      EXPECT_EQ(piece_of[node], -1) << "a node is in one piece";
      piece_of[node] = static_cast<int64_t>(i);
    }
  }
  for (int64_t node = 0; node < kNodes; ++node) EXPECT_GE(piece_of[node], 0) << node;
  for (const GraphEdge& edge : edges) EXPECT_LE(piece_of[edge.from], piece_of[edge.to]);
  EXPECT_EQ(piece_of[0], std::ssize(pieces) - 1);
}

TEST(GraphPieces, ACycleIsABug) {
  const std::vector<GraphEdge> edges{{0, 1}, {1, 2}, {2, 1}};
  EXPECT_THROW(graph_pieces(3, edges), BugError);
}

}  // namespace
}  // namespace slime::kernels
