#include "kernels/cuda/product_chain.h"

#include <algorithm>

#include "kernels/cuda/product_chain_kernel.cuh"

namespace slime::kernels::cuda {
namespace {

using chain::Arguments;
using chain::Cut;
using chain::Ending;
using chain::StageLayout;

constexpr int kMostRows = 16;
constexpr int kTiles = 4;  // of 16 outputs, in a pass, at most
/// Slabs in a stage: two or four steps for a warp.
constexpr int kLeastSlabs = 4, kMostSlabs = 8;
/// So much that no two blocks share a processor, and little enough that a block of the attention
/// kernel fits beside one.
constexpr int kRingBytes = 188 << 10;

struct DeviceTraits {
  int processors = 0, major = 0, shared_bytes = 0;
};

const DeviceTraits& device_traits() {
  static const DeviceTraits traits = [] {
    DeviceTraits out;
    int device = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    const auto read = [&](int& to, cudaDeviceAttr attribute) {
      check_cuda(cudaDeviceGetAttribute(&to, attribute, device), "cudaDeviceGetAttribute");
    };
    read(out.processors, cudaDevAttrMultiProcessorCount);
    read(out.major, cudaDevAttrComputeCapabilityMajor);
    read(out.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin);
    return out;
  }();
  return traits;
}

int up(int a, int b) { return (a + b - 1) / b; }

/// Without the number of slabs.
Cut cut_link(const ChainLink& link) {
  const bool is_pairs = link.ending == Ending::kSwiglu;
  const int units = is_pairs ? link.outputs / 2 : link.outputs;
  const int share = up(units, device_traits().processors);
  Cut cut;
  cut.passes = up(share, 16 * kTiles / (is_pairs ? 2 : 1));
  cut.box = up(share, cut.passes);
  return cut;
}

StageLayout layout_of(const ChainLink& link, const Cut& cut, int slabs, int rows) {
  return {slabs, cut.box * (link.ending == Ending::kSwiglu ? 2 : 1), rows};
}

template <typename T, int kRowTiles>
void run(const ProductChain& call, cudaStream_t stream) {
  const auto kernel = chain::product_chain_kernel<T, kTiles, kRowTiles>;
  Arguments a;
  a.num_links = call.num_links;
  a.rows = call.rows;
  a.counters = call.counters;
  // A stage holds four slabs of the widest product, and as many as fit of the others.
  for (int i = 0; i < call.num_links; ++i) {
    a.links[i] = call.links[i];
    a.cuts[i] = cut_link(a.links[i]);
    a.slot_bytes =
        std::max(a.slot_bytes, layout_of(a.links[i], a.cuts[i], kLeastSlabs, a.rows).bytes);
  }
  int fills = 0;
  for (int i = 0; i < call.num_links; ++i) {
    const ChainLink& link = a.links[i];
    Cut& cut = a.cuts[i];
    cut.slabs = kLeastSlabs;
    if (layout_of(link, cut, kMostSlabs, a.rows).bytes <= a.slot_bytes) cut.slabs = kMostSlabs;
    cut.chunks = up(link.inputs, kSlab * cut.slabs);
    cut.x_begin = layout_of(link, cut, cut.slabs, a.rows).x_begin;
    a.weights[i] =
        tile_map(call.number, link.weight_OI, link.outputs, link.inputs, cut.box, cut.slabs);
    a.x[i] = tile_map(call.number, link.x_TI, a.rows, link.inputs, a.rows, cut.slabs);
    fills += cut.passes * cut.chunks;
  }
  constexpr int kWorkBytes = sizeof(chain::Workspace<kTiles, kRowTiles>);
  const int ring_bytes = std::min(kRingBytes, device_traits().shared_bytes - kWorkBytes);
  a.trigger = fills;
  a.stages = std::min(ring_bytes / a.slot_bytes, chain::kMaxStages);
  const int shared = a.stages * a.slot_bytes + kWorkBytes;
  static const bool prepared = [&] {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    device_traits().shared_bytes),
               "shared memory of a chain of products");
    return true;
  }();
  (void)prepared;
  launch(kernel, dim3(device_traits().processors), dim3(chain::kThreads), shared, stream, a);
}

}  // namespace

int chain_squares() { return device_traits().processors; }

bool has_chain(Number number, int64_t rows) {
  return number == Number::kBFloat16 && rows <= kMostRows && device_traits().major == 9 &&
         device_traits().processors <= 32 * chain::kSquaresPerLane;
}

void product_chain(const ProductChain& call, cudaStream_t stream) {
  if (!has_chain(call.number, call.rows))
    throw std::runtime_error("a chain of products has at most " + std::to_string(kMostRows) +
                             " rows, in bfloat16");
  using T = __nv_bfloat16;
  call.rows <= 8 ? run<T, 1>(call, stream) : run<T, 2>(call, stream);
}

}  // namespace slime::kernels::cuda
