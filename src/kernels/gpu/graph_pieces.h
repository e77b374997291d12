#pragma once

/// Split of a CUDA graph into graphs that are launched one after the other.
///
/// A launch takes the host microseconds per node, and the first kernel waits for all of it. Where nothing else runs
/// meanwhile, a short piece hides most of that: each further piece is launched while the one before it executes.
///
///   340 nodes     16 | 32 | 64 | 128 | 100
///
/// Between two pieces a kernel starts after the one ahead of it has ended, which costs the GPU a few microseconds.

#include <cstdint>
#include <span>
#include <vector>

namespace slime::kernels {

/// `to` needs `from`: both are indices of nodes.
struct GraphEdge {
  int64_t from = 0, to = 0;
};

/// The first piece is launched while the GPU idles.
inline constexpr int64_t kFirstPieceNodes = 16;
/// Growth of pieces, from one to the next: a node is launched in less than half of the time that it executes.
inline constexpr int64_t kPieceGrowth = 2;

/// Indices of the nodes of each piece. No node needs one of a later piece. Throws BugError where edges form a cycle.
std::vector<std::vector<int64_t>> graph_pieces(int64_t num_nodes, std::span<const GraphEdge> edges);

}  // namespace slime::kernels
