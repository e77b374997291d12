#pragma once

/// Work distribution of grouped products: tiles of the rows of each expert by tiles of its outputs, which persistent
/// thread blocks share out among themselves. Each makes the list anew, from the starts on the device.

#include <cstdint>

namespace slime::kernels::cuda {

inline constexpr int kMostGroupedExperts = 512;

/// First row and first item of each expert.
struct GroupedWork {
  int start[kMostGroupedExperts + 1], item[kMostGroupedExperts + 1];
};

struct GroupedItem {
  int expert, row_tile, column_tile;
  int first, rows;  // of the expert
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// By all kThreads threads of the block. row_tiles: of each expert that has rows; 0: those of its rows.
template <int kThreads, int kTileRows>
__device__ void list_grouped_work(GroupedWork& work, const int32_t* starts_E1, int experts,
                                  int row_tiles, int column_tiles) {
  for (int e = threadIdx.x; e <= experts; e += kThreads) work.start[e] = starts_E1[e];
  __syncthreads();
  if (threadIdx.x < 32) {
    int first = 0;
    for (int base = 0; base < experts; base += 32) {
      const int e = base + static_cast<int>(threadIdx.x);
      const int rows = e < experts ? work.start[e + 1] - work.start[e] : 0;
      const int of_rows =
          row_tiles > 0 ? (rows > 0 ? row_tiles : 0) : (rows + kTileRows - 1) / kTileRows;
      const int own = of_rows * column_tiles;
      int sum = own;
      for (int offset = 1; offset < 32; offset *= 2) {
        const int below = __shfl_up_sync(0xffffffffU, sum, offset);
        if (threadIdx.x >= offset) sum += below;
      }
      if (e < experts) work.item[e] = first + sum - own;
      first += __shfl_sync(0xffffffffU, sum, 31);
    }
    if (threadIdx.x == 0) work.item[experts] = first;
  }
  __syncthreads();
}

/// Calls fn(item) for those of this thread block. Row tiles follow one another: they read the same
/// columns.
template <int kTileRows, typename Fn>
__device__ void for_each_grouped_item(const GroupedWork& work, int experts, int row_tiles,
                                      const Fn& fn) {
  const int items = work.item[experts];
  int e = 0;
#pragma unroll 1
  for (int i = blockIdx.x; i < items; i += gridDim.x) {
    while (i >= work.item[e + 1]) ++e;
    const int first = work.start[e], rows = work.start[e + 1] - first;
    const int of_rows = row_tiles > 0 ? row_tiles : (rows + kTileRows - 1) / kTileRows;
    const int local = i - work.item[e];
    fn(GroupedItem{e, local % of_rows, local / of_rows, first, rows});
  }
}

#endif

}  // namespace slime::kernels::cuda
