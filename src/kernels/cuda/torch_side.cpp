#include "kernels/cuda/torch_side.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/cuda/launch.cuh"
#include "kernels/gpu/graph_pieces.h"

namespace slime::kernels::cuda {
namespace {

struct EndGraph {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};
struct EndPiece {
  void operator()(cudaGraphExec_t piece) const { cudaGraphExecDestroy(piece); }
};
using OwnedGraph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, EndGraph>;
using OwnedPiece = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, EndPiece>;

std::vector<cudaGraphNode_t> nodes_of(cudaGraph_t graph) {
  size_t count = 0;
  check_cuda(cudaGraphGetNodes(graph, nullptr, &count), "counting a graph's nodes");
  std::vector<cudaGraphNode_t> nodes(count);
  if (count > 0) check_cuda(cudaGraphGetNodes(graph, nodes.data(), &count), "a graph's nodes");
  return nodes;
}

std::vector<GraphEdge> edges_of(cudaGraph_t graph, const std::vector<cudaGraphNode_t>& nodes) {
  size_t count = 0;
  check_cuda(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &count),
             "counting a graph's edges");
  std::vector<cudaGraphNode_t> from(count), to(count);
  std::vector<cudaGraphEdgeData> kinds(count);  // without it, edges of PDL are an error
  if (count > 0)
    check_cuda(cudaGraphGetEdges(graph, from.data(), to.data(), kinds.data(), &count),
               "a graph's edges");
  std::map<cudaGraphNode_t, int64_t> index;
  for (const cudaGraphNode_t node : nodes) index.emplace(node, std::ssize(index));
  std::vector<GraphEdge> edges;
  for (size_t i = 0; i < count; ++i) edges.push_back({index.at(from[i]), index.at(to[i])});
  return edges;
}

/// A graph that allocates memory cannot be cloned.
bool is_divisible(const std::vector<cudaGraphNode_t>& nodes) {
  return std::ranges::none_of(nodes, [](cudaGraphNode_t node) {
    cudaGraphNodeType type{};
    check_cuda(cudaGraphNodeGetType(node, &type), "the type of a graph's node");
    return type == cudaGraphNodeTypeMemAlloc || type == cudaGraphNodeTypeMemFree ||
           type == cudaGraphNodeTypeConditional;
  });
}

/// Copies of `graph` with the nodes of one piece each, which later launches order on their stream. None where it
/// cannot be divided.
std::vector<OwnedPiece> divided(cudaGraph_t graph) {
  std::vector<OwnedPiece> executable;
  const std::vector<cudaGraphNode_t> nodes = nodes_of(graph);
  if (!is_divisible(nodes)) return executable;
  const auto pieces = graph_pieces(std::ssize(nodes), edges_of(graph, nodes));
  for (std::size_t own = 0; own < pieces.size(); ++own) {
    cudaGraph_t clone = nullptr;
    check_cuda(cudaGraphClone(&clone, graph), "copying a graph");
    const OwnedGraph piece(clone);
    for (std::size_t other = 0; other < pieces.size(); ++other) {
      if (other == own) continue;
      for (const int64_t node : pieces[other]) {
        cudaGraphNode_t copy = nullptr;
        check_cuda(cudaGraphNodeFindInClone(&copy, nodes[node], clone), "a node of a graph's copy");
        check_cuda(cudaGraphDestroyNode(copy), "taking a node out of a graph");
      }
    }
    cudaGraphExec_t made = nullptr;
    // As LibTorch does, but for nodes that allocate.
    check_cuda(cudaGraphInstantiate(&made, clone, cudaGraphInstantiateFlagUseNodePriority),
               "making a piece of a graph executable");
    executable.emplace_back(made);
  }
  return executable;
}

class RecordedGraph final : public GpuGraph {
 public:
  RecordedGraph(const std::function<void()>& body, const at::cuda::MempoolId_t& pool,
                GraphLaunch launch)
      : graph_(/*keep_graph=*/launch == GraphLaunch::kPieces) {
    // Other threads may allocate meanwhile: only this one's calls belong to the recording.
    graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      body();
    } catch (...) {
      graph_.capture_end();
      throw;
    }
    graph_.capture_end();
    if (launch == GraphLaunch::kWhole) return;
    pieces_ = divided(graph_.raw_cuda_graph());
    if (pieces_.empty()) graph_.instantiate();
  }
  void replay() override {
    if (pieces_.empty()) return graph_.replay();
    // What graph_.replay() does beyond that is for random numbers that ATen draws, of which steps have none.
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    for (const OwnedPiece& piece : pieces_)
      check_cuda(cudaGraphLaunch(piece.get(), stream), "launching a piece of a graph");
  }
  int64_t num_pieces() const override { return std::max<int64_t>(std::ssize(pieces_), 1); }
  at::cuda::MempoolId_t pool() const { return graph_.pool(); }

 private:
  mutable at::cuda::CUDAGraph graph_;  // pool() reads it, but is not const
  std::vector<OwnedPiece> pieces_;     // none: launched whole
};

}  // namespace

cudaStream_t current_stream(int device) {
  return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).stream();
}

void release_cached_memory() { c10::cuda::CUDACachingAllocator::emptyCache(); }

void* beginning_of_allocation(void* pointer) {
  try {
    std::size_t size = 0;
    return c10::cuda::CUDACachingAllocator::getBaseAllocation(pointer, &size);
  } catch (const c10::Error& error) {
    throw std::runtime_error(error.what_without_backtrace());
  }
}

AllocatorUse allocator_use(int device) {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device);
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return {.tensors = stats.allocated_bytes[kAll].current,
          .peak_tensors = stats.allocated_bytes[kAll].peak,
          .kept = stats.reserved_bytes[kAll].current,
          .peak_kept = stats.reserved_bytes[kAll].peak};
}

void reset_allocator_peaks(int device) { c10::cuda::CUDACachingAllocator::resetPeakStats(device); }

std::unique_ptr<GpuGraph> record_graph(const std::function<void()>& body, const GpuGraph* neighbour,
                                       GraphLaunch launch) {
  const auto* shared = static_cast<const RecordedGraph*>(neighbour);
  return std::make_unique<RecordedGraph>(
      body, shared == nullptr ? at::cuda::MempoolId_t{0, 0} : shared->pool(), launch);
}

}  // namespace slime::kernels::cuda
