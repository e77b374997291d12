#include "kernels/cpu/gemm_tiles.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>
#include <vector>

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

/// Left tiles row by row from memory, the right side packed whole by each thread.
void stream(const TileOps& ops, const TileProduct& product, uint64_t number, int64_t begin,
            int64_t end) {
  const TileFactor &left = product.b, &right = product.a;
  const int64_t num_left = product.size.n, num_right = product.size.m, k = product.size.k;
  TileTarget target = product.c;
  target.transposed = !target.transposed;
  thread_local AlignedBuffer<BFloat16> right_panels, left_panels;
  thread_local AlignedBuffer<float> sums;
  thread_local uint64_t packed_number = 0;
  const int64_t steps = divide_up(k, kTileSteps), panel = steps * kTileSize;
  const int64_t right_pairs = divide_up(num_right, kPair);
  // One pair of right panels passes each left tile once; for more, tiles are to be found in the
  // first-level cache again.
  const int64_t block_steps = right_pairs == 1 ? steps : kMaxSteps / kTileSteps;
  ops.begin();
  const BFloat16* right_packed = right_panels.reserve(2 * right_pairs * panel);
  if (packed_number != number) {
    pack_pairs(ops.pack_right, right, 0, num_right, 0, k, right_panels.data());
    packed_number = number;
  }
  float* products = sums.reserve(right_pairs * kPairFloats);
  for (int64_t i = begin; i < end; i += kPair) {
    const int64_t rows = std::min(kPair, num_left - i);
    const BFloat16* from = left.data + i * left.stride;
    LeftPanels panels{from, from + kTileRows * left.stride, 2 * left.stride, kTileSteps};
    const bool is_whole = rows == kPair && k % kTileSteps == 0;
    if (!is_whole) {
      BFloat16* packed = left_panels.reserve(2 * panel);
      pack_pairs(ops.pack_left, left, i, i + rows, 0, k, packed);
      panels = {.first = packed, .second = packed + panel};
    }
    const BFloat16* soon = is_whole ? from + kPair * left.stride : nullptr;
    for (int64_t step = 0; step < steps; step += block_steps) {
      const int64_t count = std::min(block_steps, steps - step);
      for (int64_t j = 0; j < right_pairs; ++j) {
        const BFloat16* packed = right_packed + 2 * j * panel + step * kTileSize;
        ops.multiply(panels, packed, second_of(packed, panel, num_right - j * kPair), count,
                     step > 0, products + j * kPairFloats, j == 0 ? soon : nullptr);
      }
      panels.first += count * panels.step;
      panels.second += count * panels.step;
      if (soon != nullptr) soon += count * kPair * kTileSteps;
    }
    for (int64_t j = 0; j < right_pairs; ++j) {
      ops.store(products + j * kPairFloats, rows, std::min(kPair, num_right - j * kPair),
                moved(target, i, j * kPair));
    }
  }
  ops.end();
}

/// A few rows, spread, times rows that lie in memory without gaps.
void stream_for_vectors(const TileOps& ops, const TileProduct& product, const float* spread,
                        int64_t begin, int64_t end) {
  thread_local AlignedBuffer<float> block_sums;
  const int64_t steps = product.size.k / kTileSteps;
  float* sums = block_sums.reserve(kTileRows * steps);
  alignas(64) float products[kPairFloats];
  for (int64_t j = begin; j < end; j += kTileRows) {
    ops.multiply_vectors(product.b.data + j * product.size.k, spread, product.size.m, steps, sums,
                         products);
    ops.store(products, product.size.m, kTileRows, moved(product.c, 0, j));
  }
}

bool streams(const TileProduct& product) {
  return !product.a.k_strided && !product.b.k_strided && product.size.m <= kStreamedRows;
}

bool is_for_vectors(const TileOps& ops, const TileProduct& product) {
  const GemmSize& size = product.size;
  return streams(product) && size.m <= ops.max_vectors && product.b.stride == size.k &&
         size.k % kTileSteps == 0 && size.k > 0 && size.n % kTileRows == 0 && !product.c.transposed;
}

/// Rows [begin, end) of B in a product that streams.
struct StreamPiece {
  const TileProduct* product = nullptr;
  uint64_t number = 0;            // of the product among all there ever were
  const float* spread = nullptr;  // where its rows are multiplied as vectors
  int64_t begin = 0, end = 0;
};

void stream_all(const TileOps& ops, std::span<const TileProduct> products) {
  static std::atomic<uint64_t> num_products{0};
  thread_local AlignedBuffer<float> spread_memory;  // of the calling thread; the others read it
  thread_local std::vector<StreamPiece> pieces;
  pieces.clear();
  int64_t spread_size = 0, weights = 0;
  for (const TileProduct& product : products) {
    weights += product.size.n * product.size.k;
    if (is_for_vectors(ops, product))
      spread_size += product.size.m * spread_floats(product.size.k / kTileSteps);
  }
  float* spread = spread_memory.reserve(spread_size);
  // As many pieces as keep the threads busy to the end, of about the same size.
  const int64_t piece_weights = std::max<int64_t>(1, weights / (4 * num_threads()));
  for (const TileProduct& product : products) {
    const GemmSize& size = product.size;
    StreamPiece piece{.product = &product, .number = ++num_products};
    if (is_for_vectors(ops, product)) {
      piece.spread = spread;
      const int64_t steps = size.k / kTileSteps;
      for (int64_t i = 0; i < size.m; ++i, spread += spread_floats(steps))
        ops.spread_vector(product.a.data + i * product.a.stride, steps, spread);
    }
    const int64_t count =
        std::clamp<int64_t>(divide_up(size.n * size.k, piece_weights), 1, divide_up(size.n, kPair));
    const int64_t rows = round_up(divide_up(size.n, count), kPair);
    for (int64_t j = 0; j < size.n; j += rows) {
      piece.begin = j;
      piece.end = std::min(size.n, j + rows);
      pieces.push_back(piece);
    }
  }
  const std::vector<StreamPiece>& all = pieces;
  parallel_chunks(static_cast<int64_t>(all.size()), [&](int64_t chunk) {
    const StreamPiece& piece = all[static_cast<size_t>(chunk)];
    if (piece.spread != nullptr) {
      stream_for_vectors(ops, *piece.product, piece.spread, piece.begin, piece.end);
    } else {
      stream(ops, *piece.product, piece.number, piece.begin, piece.end);
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
  const TileProduct product{size, a, b, c};
  if (streams(product)) return stream_all(ops, {&product, 1});
  // Packing is cheapest for a left side along k and a right side across it; where both sides are
  // transposed the smaller one is.
  const bool swaps = a.k_strided && (!b.k_strided || size.n < size.m);
  const GemmSize transposed = swaps ? GemmSize{size.n, size.m, size.k} : size;
  TileTarget target = c;
  if (swaps) target.transposed = !target.transposed;
  multiply_blocks(ops, transposed, swaps ? b : a, swaps ? a : b, target);
}

void gemm_tiles(const TileOps& ops, std::span<const TileProduct> products) {
  std::vector<TileProduct> few;
  for (const TileProduct& product : products) {
    if (product.size.m == 0 || product.size.n == 0) continue;
    if (streams(product)) {
      few.push_back(product);
    } else {
      gemm_tiles(ops, product.size, product.a, product.b, product.c);
    }
  }
  if (!few.empty()) stream_all(ops, few);
}

}  // namespace slime::kernels::cpu
