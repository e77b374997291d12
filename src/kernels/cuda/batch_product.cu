#include "kernels/cuda/batch_product.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/batch_product_kernel.cuh"
#include "kernels/cuda/tile_map.h"

namespace slime::kernels::cuda {
namespace {

using namespace batch;

constexpr int kMostRows = 64;
constexpr int kMostParts = 8;
/// A ring of 64 KB is too small for the memory's latency; what is more than 160 gains nothing.
constexpr int kRingBytes = 160 << 10;
/// More than half of a processor's: blocks of the next kernel that came to lie beside this one's
/// would lie beside those of attention, too, and ask for their weights when it needs the memory.
constexpr int kLeastSharedBytes = 132 << 10;
/// With more blocks than processors two share one: one hides the other's beginning and end.
constexpr int kHalfRingBytes = 112 << 10;

struct DeviceTraits {
  int processors = 0, major = 0;
};

const DeviceTraits& device_traits() {
  static const DeviceTraits traits = [] {
    DeviceTraits out;
    int device = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    check_cuda(cudaDeviceGetAttribute(&out.processors, cudaDevAttrMultiProcessorCount, device),
               "cudaDeviceGetAttribute");
    check_cuda(cudaDeviceGetAttribute(&out.major, cudaDevAttrComputeCapabilityMajor, device),
               "cudaDeviceGetAttribute");
    return out;
  }();
  return traits;
}

int up(int a, int b) { return (a + b - 1) / b; }

/// Blocks of 64 outputs and as many parts of the inputs as make a block for each processor; smaller
/// ones where that leaves more than a tenth of the processors idle.
Cut cut_into_parts(int outputs, int slabs_of_inputs) {
  const int processors = device_traits().processors;
  Cut best;
  int most_blocks = 0;
  for (int box = kGroupOutputs; box >= 8; box -= 8) {
    Cut cut;
    cut.box = box;
    cut.tiles = up(outputs, box);
    cut.parts =
        std::clamp(processors / cut.tiles, 1, std::max(1, std::min(kMostParts, slabs_of_inputs)));
    const int blocks = std::min(cut.tiles * cut.parts, processors);
    if (blocks <= most_blocks) continue;
    most_blocks = blocks;
    best = cut;
    if (10 * blocks >= 9 * processors) break;
  }
  return best;
}

/// As many blocks as processors, or a multiple of that.
Cut cut_outputs(int units, int step, int most) {
  const int processors = device_traits().processors;
  const auto box_of = [&](int waves) { return up(up(units, waves * processors), step) * step; };
  Cut cut;
  for (int waves = 1; cut.box == 0 || cut.box > most; ++waves) cut.box = box_of(waves);
  cut.tiles = up(units, cut.box);
  cut.parts = 1;
  return cut;
}

Cut cut_product(int inputs, int outputs, Ending ending) {
  const bool is_pairs = ending == Ending::kSwiglu;
  constexpr int kMost = kMostGroups * kGroupOutputs;
  Cut cut = ending == Ending::kParts ? cut_into_parts(outputs, inputs / (2 * kSlab))
            : is_pairs               ? cut_outputs(outputs / 2, kPiece, kMost / 2)
                                     : cut_outputs(outputs, 8, kMost);
  const int block_outputs = is_pairs ? 2 * cut.box : cut.box;
  cut.slabs = block_outputs <= kGroupOutputs / 2 ? 4 : block_outputs <= kGroupOutputs ? 2 : 1;
  while (inputs / kSlab % cut.slabs != 0) cut.slabs /= 2;
  cut.chunks = inputs / (kSlab * cut.slabs);
  return cut;
}

template <int kRows, int kSlabs>
void run(const BatchProduct& call, const Cut& cut, cudaStream_t stream) {
  const auto kernel = batch_product_kernel<kRows, kSlabs>;
  const bool is_pairs = call.ending == Ending::kSwiglu;
  Arguments a;
  a.cut = cut;
  a.bias_O = static_cast<const __nv_bfloat16*>(call.bias_O);
  a.y = call.y;
  a.ending = call.ending;
  a.float_result = call.float_result;
  a.rows = call.rows;
  a.units = is_pairs ? call.outputs / 2 : call.outputs;
  const int outputs = is_pairs ? 2 * cut.box : cut.box;
  a.weights = tile_map(Number::kBFloat16, call.weight_OI, call.outputs, call.inputs, cut.box,
                       is_pairs ? 1 : cut.slabs);
  a.x = tile_map(Number::kBFloat16, call.x_TI, call.rows, call.inputs, kRows, cut.slabs);
  const int groups = up(outputs, kGroupOutputs);
  a.x_begin = up(128 * cut.slabs * outputs, 1024) * 1024;
  a.slot_bytes = a.x_begin + 128 * cut.slabs * kRows;
  // Behind the last slot: what a group multiplies beyond the block's outputs.
  const int reached = 128 * (outputs * (cut.slabs - 1) + kGroupOutputs * groups);
  const int beyond = up(std::max(0, reached - a.slot_bytes), 1024) * 1024;
  const bool is_alone = cut.tiles * cut.parts <= device_traits().processors;
  const int room = is_alone ? kRingBytes : kHalfRingBytes;
  a.stages = std::min({(room - beyond) / a.slot_bytes, kMaxStages, up(cut.chunks, cut.parts)});
  const int sums = 4 * kRows * (outputs + 4);
  const int shared =
      std::max({a.stages * a.slot_bytes + beyond, sums, is_alone ? kLeastSharedBytes : 0});
  static const bool prepared = [&] {
    check_cuda(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kRingBytes),
        "shared memory of a product");
    return true;
  }();
  (void)prepared;
  launch(kernel, dim3(cut.tiles, cut.parts), dim3(128 * groups + 32), shared, stream, a);
}

}  // namespace

bool has_batch_product(Number number, int64_t rows) {
  return number == Number::kBFloat16 && rows <= kMostRows && device_traits().major == 9;
}

int batch_product_parts(int inputs, int outputs) {
  return cut_product(inputs, outputs, Ending::kParts).parts;
}

void batch_product(const BatchProduct& call, cudaStream_t stream) {
  if (!has_batch_product(Number::kBFloat16, call.rows))
    throw std::runtime_error("a product of a batch has at most " + std::to_string(kMostRows) +
                             " rows");
  const Cut cut = cut_product(call.inputs, call.outputs, call.ending);
  const auto with_rows = [&](auto rows) {
    constexpr int kRows = decltype(rows)::value;
    switch (cut.slabs) {
      case 1:
        return run<kRows, 1>(call, cut, stream);
      case 2:
        return run<kRows, 2>(call, cut, stream);
      default:
        return run<kRows, 4>(call, cut, stream);
    }
  };
  if (call.rows <= 8) {
    with_rows(std::integral_constant<int, 8>());
  } else if (call.rows <= 16) {
    with_rows(std::integral_constant<int, 16>());
  } else if (call.rows <= 32) {
    with_rows(std::integral_constant<int, 32>());
  } else {
    with_rows(std::integral_constant<int, 64>());
  }
}

}  // namespace slime::kernels::cuda
