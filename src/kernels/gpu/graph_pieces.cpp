#include "kernels/gpu/graph_pieces.h"

#include <functional>
#include <queue>
#include <utility>

#include "core/error.h"

namespace slime::kernels {
namespace {

/// Each node after those that it needs; of several the first one.
std::vector<int64_t> ordered(int64_t num_nodes, std::span<const GraphEdge> edges) {
  std::vector<std::vector<int64_t>> dependents(static_cast<std::size_t>(num_nodes));
  std::vector<int64_t> num_needed(static_cast<std::size_t>(num_nodes), 0);
  for (const GraphEdge& edge : edges) {
    dependents[edge.from].push_back(edge.to);
    ++num_needed[edge.to];
  }
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> ready;
  for (int64_t node = 0; node < num_nodes; ++node)
    if (num_needed[node] == 0) ready.push(node);
  std::vector<int64_t> order;
  while (!ready.empty()) {
    const int64_t node = ready.top();
    ready.pop();
    order.push_back(node);
    for (const int64_t dependent : dependents[node])
      if (--num_needed[dependent] == 0) ready.push(dependent);
  }
  check(std::ssize(order) == num_nodes, "nodes of a graph do not need one another in a cycle");
  return order;
}

}  // namespace

std::vector<std::vector<int64_t>> graph_pieces(int64_t num_nodes,
                                               std::span<const GraphEdge> edges) {
  std::vector<std::vector<int64_t>> pieces;
  std::vector<int64_t> piece;
  int64_t length = kFirstPieceNodes;
  for (const int64_t node : ordered(num_nodes, edges)) {
    if (std::ssize(piece) == length) {
      pieces.push_back(std::exchange(piece, {}));
      length *= kPieceGrowth;
    }
    piece.push_back(node);
  }
  if (!piece.empty()) pieces.push_back(std::move(piece));
  return pieces;
}

}  // namespace slime::kernels
