#pragma once

/// The kernel of kernels/cuda/product_chain.h: what its blocks and warps do.

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/product_chain.h"
#include "kernels/cuda/tensor_core.cuh"
#include "kernels/cuda/tile_map.h"

namespace slime::kernels::cuda::chain {

inline constexpr int kWarps = 8;  // that multiply; one more asks for weights, one for x
inline constexpr int kThreads = 32 * (kWarps + 2);
inline constexpr int kMaxStages = 16;
inline constexpr int kMaxLinks = ProductChain::kMaxLinks;
inline constexpr int kSquaresPerLane = 5;  // as many blocks as 32 times this

/// Between stages that are asked for before the input is there. The kernels before this one wait
/// for memory more than they use its bandwidth: asking for all stages at once holds them up by more
/// than it gains.
inline constexpr int kPaceCycles = 4000;

using Ending = ChainLink::Ending;

/// Of a stage: weights as [slab, output, 64] (gates, then ups), then x as [slab, row, 64].
struct StageLayout {
  int x_begin = 0, bytes = 0;

  StageLayout() = default;
  StageLayout(int slabs, int outputs, int rows) {
    const auto up = [](int bytes) { return (bytes + 1023) / 1024 * 1024; };
    x_begin = up(128 * slabs * outputs);
    bytes = x_begin + up(128 * slabs * rows);
  }
};

/// How a product is cut.
struct Cut {
  int passes = 0;
  int box = 0;     // outputs (pairs of gate and up) of a pass, at most
  int slabs = 0;   // of 64 inputs in a stage
  int chunks = 0;  // stages that all inputs take
  int x_begin = 0;
};

struct Arguments {
  CUtensorMap weights[kMaxLinks], x[kMaxLinks];
  ChainLink links[kMaxLinks];
  Cut cuts[kMaxLinks];
  int num_links = 0, rows = 0, stages = 0, slot_bytes = 0;
  int trigger = 0;  // fills of the ring before the next kernel may start
  uint32_t* counters = nullptr;
};

template <int kTiles, int kRowTiles>
struct alignas(128) Workspace {
  uint64_t full[kMaxStages], empty[kMaxStages], input;
  float partial[kWarps][8][16 * kTiles + 4];  // the 4 spread rows over banks
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

/// The outputs (pairs) that this block has of a pass.
struct Range {
  int from, count;

  __device__ Range(const ChainLink& link, const Cut& cut, int pass) {
    const int units = link.ending == Ending::kSwiglu ? link.outputs / 2 : link.outputs;
    const auto part = [](int total, int i, int n) {
      return static_cast<int>(static_cast<int64_t>(total) * i / n);
    };
    const int first = part(units, blockIdx.x, gridDim.x);
    const int share = part(units, blockIdx.x + 1, gridDim.x) - first;
    from = first + share * pass / cut.passes;
    count = first + share * (pass + 1) / cut.passes - from;
  }
};

/// A place in the ring, and how often it has come round.
struct Place {
  int slot = 0;
  uint32_t round = 0;

  __device__ void advance(int stages) {
    if (++slot < stages) return;
    slot = 0;
    round ^= 1;
  }
};

struct Ring {
  uint32_t memory, full, empty, input;
};

/// By one thread.
__device__ inline void ask_for_weights(const Arguments& a, const Ring& ring) {
  const auto pace = [&] {
    const int64_t begin = clock64();
    while (clock64() - begin < kPaceCycles && !has_completed(ring.input, 0)) continue;
  };
  Place place;
  int fills = 0;
  for (int i = 0; i < a.num_links; ++i) {
    const ChainLink& link = a.links[i];
    const Cut& cut = a.cuts[i];
    const bool is_pairs = link.ending == Ending::kSwiglu;
    const int half = 128 * cut.slabs * cut.box;
    for (int pass = 0; pass < cut.passes; ++pass) {
      const Range range(link, cut, pass);
      for (int chunk = 0; chunk < cut.chunks; ++chunk) {
        const uint32_t barrier = ring.full + 8 * place.slot;
        const uint32_t to = ring.memory + place.slot * a.slot_bytes;
        if (fills >= a.stages) {
          wait(ring.empty + 8 * place.slot, place.round ^ 1);
        } else if (fills > 0) {
          pace();
        }
        arrive_expecting(barrier, is_pairs ? 2 * half : half);
        copy_tile(to, a.weights[i], range.from, chunk * cut.slabs, barrier);
        if (is_pairs)
          copy_tile(to + half, a.weights[i], link.outputs / 2 + range.from, chunk * cut.slabs,
                    barrier);
        if (++fills == a.trigger) let_next_start();
        place.advance(a.stages);
      }
    }
  }
}

/// By one thread.
__device__ inline void ask_for_x(const Arguments& a, const Ring& ring) {
  Place place;
  int fills = 0;
  for (int i = 0; i < a.num_links; ++i) {
    const Cut& cut = a.cuts[i];
    prefetch_map(a.x[i]);
    if (i == 0) {
      wait_for_inputs();
      arrive(ring.input);
    } else {
      while (load_acquire(a.counters + i) < gridDim.x) continue;
    }
    let_copies_see();
    for (int pass = 0; pass < cut.passes; ++pass) {
      for (int chunk = 0; chunk < cut.chunks; ++chunk) {
        const uint32_t barrier = ring.full + 8 * place.slot;
        if (fills++ >= a.stages) wait(ring.empty + 8 * place.slot, place.round ^ 1);
        arrive_expecting(barrier, 128 * cut.slabs * a.rows);
        copy_tile(ring.memory + place.slot * a.slot_bytes + cut.x_begin, a.x[i], 0,
                  chunk * cut.slabs, barrier);
        place.advance(a.stages);
      }
    }
  }
  if (a.num_links == 1) return;
  // Nobody of this block looks at the counters any more; the last block makes them zero again.
  if (atomicAdd(a.counters, 1) == gridDim.x - 1)
    for (int i = 0; i < ProductChain::kCounters; ++i) a.counters[i] = 0;
}

__device__ inline void sync_consumers() {
  asm volatile("bar.sync 1, %0;" ::"n"(32 * kWarps) : "memory");
}

/// What a lane reads for its outputs of a row before the row's sums are there: outputs lane, lane +
/// 32, ...
template <typename T, int kHeld>
struct Held {
  T x[kHeld];

  __device__ void load(const void* row, const Range& range) {
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const int o = threadIdx.x % 32 + 32 * j;
      if (o < range.count) x[j] = static_cast<const T*>(row)[range.from + o];
    }
  }
};

/// What becomes of one row of a pass, by a warp: `sum(o)` is the product's o-th output or gate,
/// `sum(box + o)` the o-th up. Returns this lane's share of the sum of squares.
template <typename T, int kHeld, typename Sum>
__device__ float finish_row(const ChainLink& link, int row, const Range& range, int box,
                            float scale, const Held<T, kHeld>& residual, const Held<T, kHeld>& norm,
                            const Sum& sum) {
  const auto* bias = static_cast<const T*>(link.bias_O);
  const auto with_bias = [&](float x, int output) {
    return bias == nullptr ? x : x + to_float(bias[output]);
  };
  const bool is_pairs = link.ending == Ending::kSwiglu, is_sum = link.ending == Ending::kAdd;
  const int width = is_pairs ? link.outputs / 2 : link.outputs;
  const int64_t place = static_cast<int64_t>(row) * width + range.from;
  T* y = static_cast<T*>(link.y) + place;
  float squares = 0;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int o = threadIdx.x % 32 + 32 * j;
    if (o >= range.count) break;
    float value = with_bias(scale * sum(o), range.from + o);
    if (is_pairs) {
      const float up = with_bias(scale * sum(box + o), width + range.from + o);
      value = value / (1.0F + __expf(-value)) * up;
    } else if (is_sum) {
      const T added = from_float<T>(to_float(residual.x[j]) + value);
      static_cast<T*>(link.sum_TO)[place + o] = added;
      value = to_float(added);
      squares += value * value;
      value *= to_float(norm.x[j]);
    }
    if (link.float_result) {
      static_cast<float*>(link.y)[place + o] = value;
    } else {
      y[o] = from_float<T>(value);
    }
  }
  return squares;
}

/// Of a 16-byte piece: the copy engine has put it at its number xor the line's.
__device__ inline uint32_t address_of(uint32_t begin, uint32_t line, uint32_t piece) {
  return begin + 128 * line + ((piece ^ (line & 7)) << 4);
}

/// A step's operands: 16 inputs of up to 16 kTiles outputs and 8 kRowTiles rows.
template <int kTiles, int kRowTiles>
struct Operands {
  uint32_t w[kTiles][4], x[kRowTiles][2];

  __device__ void load_x(int pair, uint32_t address) {
    if constexpr (kRowTiles == 1) {
      load_matrices(x[0], address);
    } else {
      uint32_t both[4];
      load_matrices(both, address);
      x[2 * pair][0] = both[0];
      x[2 * pair][1] = both[1];
      x[2 * pair + 1][0] = both[2];
      x[2 * pair + 1][1] = both[3];
    }
  }

  template <typename T>
  __device__ void multiply_into(float (&sum)[kTiles][kRowTiles][4]) const {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n)
        multiply<T>(sum[tile][n], w[tile][0], w[tile][1], w[tile][2], w[tile][3], x[n][0], x[n][1]);
    }
  }
};

/// What a pass over all inputs needs to know, in registers: the compiler would fetch it from the
/// arguments again after every wait.
struct Pass {
  int box, most_outputs, slabs, chunks, rows, stages;
  uint32_t x_begin, slot_bytes;
};

/// Multiplies, and leaves each warp's sums of eight rows at a time in `partial`: then `finish(n)`
/// is called for rows 8 n and following.
template <typename T, int kTiles, int kRowTiles, int kPitch, typename Finish>
__device__ void multiply_pass(const Pass& pass, const Ring& ring, Place& place,
                              float (&partial)[kWarps][8][kPitch], const Finish& finish) {
  constexpr int kPairs = (kRowTiles + 1) / 2;     // of eight rows of x
  constexpr int kGroup = kRowTiles == 1 ? 2 : 1;  // steps whose operands are loaded together
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // A warp takes every eighth step of 16 inputs: the same piece of every second slab. Its lines of
  // the first one follow; rows that are not there repeat the last one, their results are not used.
  const uint32_t first_slab = warp / 4, weight_piece = warp % 4 * 2 + lane / 16;
  const uint32_t x_piece = warp % 4 * 2 + lane / 8 % 2;
  uint32_t weight_lines[kTiles], x_lines[kPairs];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int row = min(16 * tile + lane % 16, pass.most_outputs - 1);
    weight_lines[tile] =
        first_slab * pass.box + (row < pass.box ? row : row - pass.box + pass.slabs * pass.box);
  }
#pragma unroll
  for (int pair = 0; pair < kPairs; ++pair)
    x_lines[pair] =
        first_slab * pass.rows + min(16 * pair + lane / 16 * 8 + lane % 8, pass.rows - 1);

  float sum[kTiles][kRowTiles][4] = {};
  for (int chunk = 0; chunk < pass.chunks; ++chunk) {
    wait(ring.full + 8 * place.slot, place.round);
    const uint32_t stage = ring.memory + place.slot * pass.slot_bytes;
#pragma unroll 1
    for (int slab = 0; slab < pass.slabs; slab += 2 * kGroup) {
      Operands<kTiles, kRowTiles> now[kGroup];
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        const uint32_t line = (slab + 2 * g) * pass.rows, weight_line = (slab + 2 * g) * pass.box;
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair)
          now[g].load_x(pair, address_of(stage + pass.x_begin, x_lines[pair] + line, x_piece));
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile)
          load_matrices(now[g].w[tile],
                        address_of(stage, weight_lines[tile] + weight_line, weight_piece));
      }
#pragma unroll
      for (int g = 0; g < kGroup; ++g) now[g].template multiply_into<T>(sum);
    }
    __syncwarp();
    if (lane == 0) arrive(ring.empty + 8 * place.slot);
    place.advance(pass.stages);
  }

  const int group = lane / 4, quarter = lane % 4;
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
    if (8 * n >= pass.rows) break;
    sync_consumers();
    float(*mine)[kPitch] = partial[warp];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      mine[2 * quarter][16 * tile + group] = sum[tile][n][0];
      mine[2 * quarter + 1][16 * tile + group] = sum[tile][n][1];
      mine[2 * quarter][16 * tile + group + 8] = sum[tile][n][2];
      mine[2 * quarter + 1][16 * tile + group + 8] = sum[tile][n][3];
    }
    sync_consumers();
    if (8 * n + warp < pass.rows) finish(n);
  }
}

template <typename T, int kMostTiles, int kRowTiles>
__device__ void multiply_chain(const Arguments& a, const Ring& ring,
                               Workspace<kMostTiles, kRowTiles>& work) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  constexpr int kHeld = (16 * kMostTiles + 31) / 32;
  const auto num_blocks = static_cast<int>(gridDim.x);
  Place place;
  wait_for_inputs();
  for (int i = 0; i < a.num_links; ++i) {
    const ChainLink& link = a.links[i];
    const Cut& cut = a.cuts[i];
    const bool is_scaled = link.squares_TP != nullptr, is_sum = link.ending == Ending::kAdd;
    const int num_passes = cut.passes;
    Pass pass;
    pass.box = cut.box;
    pass.most_outputs = link.ending == Ending::kSwiglu ? 2 * cut.box : cut.box;
    pass.slabs = cut.slabs;
    pass.chunks = cut.chunks;
    pass.rows = a.rows;
    pass.stages = a.stages;
    pass.x_begin = cut.x_begin;
    pass.slot_bytes = a.slot_bytes;
    const int tiles = (pass.most_outputs + 15) / 16;

    // Of rows warp, warp + 8, ... With few rows the sums of squares are on their way while the
    // kernel multiplies.
    constexpr int kParts = kRowTiles == 1 ? kSquaresPerLane : 1;
    float scale[kRowTiles], squares[kRowTiles] = {}, parts[kRowTiles][kParts] = {};
    if (is_scaled) {
      wait(ring.full + 8 * place.slot, place.round);  // the product before is complete
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
        for (int j = 0; j < kSquaresPerLane; ++j) {
          const int row = 8 * n + warp, block = lane + 32 * j;
          if (row < a.rows && block < num_blocks)
            parts[n][j % kParts] += __ldcg(link.squares_TP + row * num_blocks + block);
        }
      }
    }
    for (int number = 0; number < num_passes; ++number) {
      const Range range(link, cut, number);
      Held<T, kHeld> residual[kRowTiles], norm;
      if (is_sum) {
        norm.load(link.norm_O, range);
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n)
          if (8 * n + warp < a.rows)
            residual[n].load(static_cast<const T*>(link.residual_TO) +
                                 static_cast<int64_t>(8 * n + warp) * link.outputs,
                             range);
      }
      const auto finish = [&](int n) {
        if (number == 0) {
          float total = 0;
#pragma unroll
          for (int j = 0; j < kParts; ++j) total += parts[n][j];
          total = warp_sum(total) / static_cast<float>(link.inputs);
          scale[n] = is_scaled ? rsqrtf(total + link.eps) : 1.0F;
        }
        squares[n] += finish_row<T>(link, 8 * n + warp, range, pass.box, scale[n], residual[n],
                                    norm, [&](int o) {
                                      float total = 0;
#pragma unroll
                                      for (int w = 0; w < kWarps; ++w)
                                        total += work.partial[w][warp][o];
                                      return total;
                                    });
      };
      switch (tiles) {
        case 1:
          multiply_pass<T, 1, kRowTiles>(pass, ring, place, work.partial, finish);
          break;
        case 2:
          multiply_pass<T, 2, kRowTiles>(pass, ring, place, work.partial, finish);
          break;
        case 3:
          multiply_pass<T, 3, kRowTiles>(pass, ring, place, work.partial, finish);
          break;
        default:
          multiply_pass<T, kMostTiles, kRowTiles>(pass, ring, place, work.partial, finish);
      }
    }
    if (is_sum) {
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
        if (8 * n + warp >= a.rows) break;
        const float total = warp_sum(squares[n]);
        if (lane == 0) link.squares_out_TP[(8 * n + warp) * num_blocks + blockIdx.x] = total;
      }
    }
    if (i + 1 == a.num_links) break;
    sync_consumers();
    if (threadIdx.x == 0) add_release(a.counters + i + 1, 1);
  }
}

#endif

template <typename T, int kTiles, int kRowTiles>
__global__ void __launch_bounds__(kThreads, kRowTiles == 1 ? 2 : 1)
    product_chain_kernel(const __grid_constant__ Arguments a) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& work = *reinterpret_cast<Workspace<kTiles, kRowTiles>*>(memory + a.stages * a.slot_bytes);
  const Ring ring{shared_address(memory), shared_address(work.full), shared_address(work.empty),
                  shared_address(&work.input)};
  if (threadIdx.x == 0) {
    init_barrier(ring.input, 1);
    for (int i = 0; i < a.stages; ++i) {
      init_barrier(ring.full + 8 * i, 2);  // weights and x
      init_barrier(ring.empty + 8 * i, kWarps);
    }
    publish_barriers();
  }
  __syncthreads();
  const int warp = threadIdx.x / 32;
  if (warp < kWarps) {
    multiply_chain<T, kTiles, kRowTiles>(a, ring, work);
  } else if (threadIdx.x % 32 == 0) {
    warp == kWarps ? ask_for_weights(a, ring) : ask_for_x(a, ring);
  }
#endif
}

}  // namespace slime::kernels::cuda::chain
