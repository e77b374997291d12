#pragma once

/// How a chain of products (kernels/cuda/product_chain.h) is cut, and the ring in shared memory
/// through which its operands come: two threads of a block ask for them.

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/product_chain.h"
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

#endif

}  // namespace slime::kernels::cuda::chain
