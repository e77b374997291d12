#include "kernels/cpu/gemm_tiles.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "core/divide_up.h"
#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/thread_pool.h"

namespace slime::kernels::cpu {
namespace {

using at::BFloat16;

/// Rows of A up to which B's way through memory takes longer than the products: 2 * 128 operations
/// per weight at 1 TFLOP/s of a core are 256 ps, its two bytes at 14 GB/s 143 ps.
constexpr int64_t kStreamedRows = 128;
constexpr int64_t kPair = 2 * kTileRows;  // rows that one multiply() covers
constexpr int64_t kPairFloats = kPair * kPair;
/// Steps of k at a time: a pair of panels of each side, 36 KiB, stays in the first-level cache.
constexpr int64_t kMaxSteps = 288;
constexpr int64_t kMaxRight = 512;  // rows of the right side in a block: 288 KiB packed
/// Rows of the left side: as many as pay for packing the right, fewer where their sums wait for
/// further blocks of k (1.1 MiB).
constexpr int64_t kMaxLeft = 1024;
constexpr int64_t kMaxWaitingLeft = 576;
/// A side that several blocks need is packed once for all of them, up to this size: beyond it, the
/// way to memory and back costs more than packing again.
constexpr int64_t kMaxShared = int64_t{8} << 20;  // bytes

TileTarget moved(TileTarget target, int64_t i, int64_t j) {
  const int64_t at = target.transposed ? j * target.stride + i : i * target.stride + j;
  target.data = target.store == TileStore::kBfloat16
                    ? static_cast<void*>(static_cast<BFloat16*>(target.data) + at)
                    : static_cast<void*>(static_cast<float*>(target.data) + at);
  return target;
}

/// Rows [begin, end) of one side, in pairs of panels. A last, incomplete pair is filled up with
/// zeros.
using PackFn = void (*)(const TileFactor&, int64_t, int64_t, int64_t, int64_t, BFloat16*);
void pack_pairs(PackFn pack, const TileFactor& factor, int64_t begin, int64_t end, int64_t p,
                int64_t k, BFloat16* out) {
  const int64_t panel = divide_up(k, kTileSteps) * kTileSize;
  for (int64_t i = begin; i < begin + round_up(end - begin, kPair); i += kTileRows, out += panel) {
    pack(factor, i, std::clamp<int64_t>(end - i, 0, kTileRows), p, k, out);
  }
}

const BFloat16* second_of(const BFloat16* packed, int64_t panel, int64_t rows) {
  return rows > kTileRows ? packed + panel : nullptr;
}

/// The left side row by row from memory, the right side packed whole by each thread.
void stream(const TileOps& ops, const GemmSize& size, const TileFactor& left,
            const TileFactor& right, const TileTarget& target) {
  static std::atomic<uint64_t> num_products{0};
  const uint64_t product = ++num_products;
  const int64_t steps = divide_up(size.k, kTileSteps), panel = steps * kTileSize;
  const int64_t pairs = divide_up(size.m, kPair), right_pairs = divide_up(size.n, kPair);
  const int64_t chunks = std::min<int64_t>(pairs, 4 * num_threads());
  // One pair of right panels passes each left tile once; for more, tiles are to be found in the
  // first-level cache again.
  const int64_t block_steps = right_pairs == 1 ? steps : kMaxSteps / kTileSteps;
  parallel_chunks(chunks, [&](int64_t chunk) {
    thread_local AlignedBuffer<BFloat16> right_panels, left_panels;
    thread_local AlignedBuffer<float> sums;
    thread_local uint64_t packed_product = 0;
    ops.begin();
    const BFloat16* right_packed = right_panels.reserve(2 * right_pairs * panel);
    if (packed_product != product) {
      pack_pairs(ops.pack_right, right, 0, size.n, 0, size.k, right_panels.data());
      packed_product = product;
    }
    float* products = sums.reserve(right_pairs * kPairFloats);
    const int64_t end = (chunk + 1) * pairs / chunks;
    for (int64_t pair = chunk * pairs / chunks; pair < end; ++pair) {
      const int64_t i = pair * kPair, rows = std::min(kPair, size.m - i);
      const BFloat16* from = left.data + i * left.stride;
      LeftPanels panels{from, from + kTileRows * left.stride, 2 * left.stride, kTileSteps};
      const bool is_whole = rows == kPair && size.k % kTileSteps == 0;
      if (!is_whole) {
        BFloat16* packed = left_panels.reserve(2 * panel);
        pack_pairs(ops.pack_left, left, i, i + rows, 0, size.k, packed);
        panels = {.first = packed, .second = packed + panel};
      }
      const BFloat16* soon = is_whole ? from + kPair * left.stride : nullptr;
      for (int64_t step = 0; step < steps; step += block_steps) {
        const int64_t count = std::min(block_steps, steps - step);
        for (int64_t j = 0; j < right_pairs; ++j) {
          const BFloat16* packed = right_packed + 2 * j * panel + step * kTileSize;
          ops.multiply(panels, packed, second_of(packed, panel, size.n - j * kPair), count,
                       step > 0, products + j * kPairFloats, j == 0 ? soon : nullptr);
        }
        panels.first += count * panels.step;
        panels.second += count * panels.step;
        if (soon != nullptr) soon += count * kPair * kTileSteps;
      }
      for (int64_t j = 0; j < right_pairs; ++j) {
        ops.store(products + j * kPairFloats, rows, std::min(kPair, size.n - j * kPair),
                  moved(target, i, j * kPair));
      }
    }
    ops.end();
  });
}

/// One row times rows that lie in memory without gaps, read in their order: the rate is memory's.
void stream_for_one(const TileOps& ops, const GemmSize& size, const BFloat16* row,
                    const BFloat16* rows, const TileTarget& target) {
  const int64_t steps = size.k / kTileSteps, tiles = size.n / kTileRows;
  const int64_t chunks = std::min<int64_t>(tiles, 4 * num_threads());
  thread_local AlignedBuffer<float> spread_memory;  // of the calling thread; the others read it
  float* spread = spread_memory.reserve(spread_floats(steps));
  ops.spread_vector(row, steps, spread);
  parallel_chunks(chunks, [&](int64_t chunk) {
    thread_local AlignedBuffer<float> block_sums;
    float* sums = block_sums.reserve(kTileRows * steps);
    alignas(64) float products[kPairFloats];
    const int64_t end = (chunk + 1) * tiles / chunks;
    for (int64_t tile = chunk * tiles / chunks; tile < end; ++tile) {
      const int64_t j = tile * kTileRows;
      ops.multiply_vector(rows + j * size.k, spread, steps, sums, products);
      ops.store(products, 1, kTileRows, moved(target, 0, j));
    }
  });
}

/// Cache blocking of one dimension: even blocks, a multiple of the pair long, none above `limit`.
struct Blocking {
  int64_t size, piece;
  Blocking(int64_t size_, int64_t limit)
      : size(size_), piece(round_up(divide_up(size_, divide_up(size_, limit)), kPair)) {}
  int64_t count() const { return divide_up(size, piece); }
  int64_t begin(int64_t i) const { return i * piece; }
  int64_t end(int64_t i) const { return std::min(size, (i + 1) * piece); }
};

/// Cache blocking of k: even blocks, a multiple of a tile's steps long.
struct Depth {
  int64_t k, count, piece;
  explicit Depth(int64_t k_)
      : k(k_),
        count(std::max<int64_t>(1, divide_up(k_, kMaxSteps))),
        piece(round_up(divide_up(k_, count), kTileSteps)) {}
  int64_t begin(int64_t block) const { return block * piece; }
  int64_t size(int64_t block) const { return std::min(piece, k - begin(block)); }
  int64_t panel(int64_t block) const { return divide_up(size(block), kTileSteps) * kTileSize; }
};

/// One side packed as a whole: block after block of k, in each the pairs of all rows.
class SharedSide {
 public:
  SharedSide(PackFn pack, const TileFactor& factor, int64_t rows, const Depth& depth,
             AlignedBuffer<BFloat16>& memory)
      : padded_(round_up(rows, kPair)), depth_(depth) {
    BFloat16* packed = memory.reserve(padded_ * round_up(depth.k, kTileSteps));
    packed_ = packed;
    const int64_t pairs = padded_ / kPair;
    parallel_chunks(depth.count * pairs, [&](int64_t chunk) {
      const int64_t block = chunk / pairs, i = chunk % pairs * kPair;
      pack_pairs(pack, factor, i, std::min(rows, i + kPair), depth.begin(block), depth.size(block),
                 packed + offset(block, i));
    });
  }
  const BFloat16* at(int64_t block, int64_t row) const { return packed_ + offset(block, row); }

 private:
  int64_t offset(int64_t block, int64_t row) const {
    return depth_.begin(block) * padded_ + row / kTileRows * depth_.panel(block);
  }
  int64_t padded_;
  Depth depth_;
  const BFloat16* packed_ = nullptr;
};

void multiply_blocks(const TileOps& ops, const GemmSize& size, const TileFactor& left,
                     const TileFactor& right, const TileTarget& target) {
  const Depth depth(size.k);
  const Blocking left_blocks(size.m, depth.count > 1 ? kMaxWaitingLeft : kMaxLeft);
  Blocking right_blocks(size.n, kMaxRight);
  while (left_blocks.count() * right_blocks.count() < 2 * num_threads() &&
         right_blocks.piece > 2 * kPair)
    right_blocks = Blocking(size.n, right_blocks.piece - kPair);

  // Of the calling thread; the others read them until this product is done.
  thread_local AlignedBuffer<BFloat16> left_memory, right_memory;
  std::optional<SharedSide> shared_left, shared_right;
  // Copying rows that lie along k costs too little to share them.
  if (left.k_strided && right_blocks.count() > 1 && 2 * size.m * size.k <= kMaxShared)
    shared_left.emplace(ops.pack_left, left, size.m, depth, left_memory);
  if (left_blocks.count() > 1 && 2 * size.n * size.k <= kMaxShared)
    shared_right.emplace(ops.pack_right, right, size.n, depth, right_memory);

  parallel_chunks(left_blocks.count() * right_blocks.count(), [&](int64_t chunk) {
    thread_local AlignedBuffer<BFloat16> left_panels, right_panels;
    thread_local AlignedBuffer<float> sums;
    const int64_t i0 = left_blocks.begin(chunk / right_blocks.count()),
                  i1 = left_blocks.end(chunk / right_blocks.count());
    const int64_t j0 = right_blocks.begin(chunk % right_blocks.count()),
                  j1 = right_blocks.end(chunk % right_blocks.count());
    const int64_t wide = divide_up(j1 - j0, kPair), high = divide_up(i1 - i0, kPair);
    BFloat16* own_left = left_panels.reserve(2 * depth.panel(0));
    BFloat16* own_right = right_panels.reserve(2 * wide * depth.panel(0));
    float* waiting = sums.reserve((depth.count > 1 ? high * wide : 1) * kPairFloats);
    ops.begin();
    for (int64_t block = 0; block < depth.count; ++block) {
      const int64_t p = depth.begin(block), k = depth.size(block), panel = depth.panel(block);
      if (!shared_right) pack_pairs(ops.pack_right, right, j0, j1, p, k, own_right);
      const BFloat16* right_packed = shared_right ? shared_right->at(block, j0) : own_right;
      for (int64_t pair = 0; pair < high; ++pair) {
        const int64_t i = i0 + pair * kPair, rows = std::min(kPair, i1 - i);
        if (!shared_left) pack_pairs(ops.pack_left, left, i, i + rows, p, k, own_left);
        const BFloat16* left_packed = shared_left ? shared_left->at(block, i) : own_left;
        const LeftPanels panels{.first = left_packed, .second = left_packed + panel};
        for (int64_t column = 0; column < wide; ++column) {
          const int64_t j = j0 + column * kPair;
          const BFloat16* packed = right_packed + column * 2 * panel;
          float* products =
              depth.count > 1 ? waiting + (pair * wide + column) * kPairFloats : waiting;
          ops.multiply(panels, packed, second_of(packed, panel, j1 - j), panel / kTileSize,
                       block > 0, products, nullptr);
          if (block + 1 == depth.count)
            ops.store(products, rows, std::min(kPair, j1 - j), moved(target, i, j));
        }
      }
    }
    ops.end();
  });
}

}  // namespace

void gemm_tiles(const TileOps& ops, const GemmSize& size, const TileFactor& a, const TileFactor& b,
                const TileTarget& c) {
  if (size.m == 0 || size.n == 0) return;
  const bool streams = !a.k_strided && !b.k_strided && size.m <= kStreamedRows;
  if (streams && size.m == 1 && b.stride == size.k && size.k % kTileSteps == 0 && size.k > 0 &&
      size.n % kTileRows == 0 && !c.transposed)
    return stream_for_one(ops, size, a.data, b.data, c);
  // Packing is cheapest for a left side along k and a right side across it; where both sides are
  // transposed the smaller one is.
  const bool swaps = streams || (a.k_strided && (!b.k_strided || size.n < size.m));
  const GemmSize transposed = swaps ? GemmSize{size.n, size.m, size.k} : size;
  TileTarget target = c;
  if (swaps) target.transposed = !target.transposed;
  (streams ? stream : multiply_blocks)(ops, transposed, swaps ? b : a, swaps ? a : b, target);
}

}  // namespace slime::kernels::cpu
