#include "kernels/cpu/tree_attention_tiles.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/numbers.h"
#include "kernels/cpu/thread_pool.h"

namespace slime::kernels::cpu {
namespace {

using at::BFloat16;

constexpr int64_t kPair = 2 * kTileRows;

int64_t panels_of(int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }
int64_t steps_of(int64_t k) { return (k + kTileSteps - 1) / kTileSteps; }

/// The queries of one block under the heads that share a key-value head, stacked: row
/// h * padded + t. Heads start at whole steps, so that the stack is also a k of products.
struct Stack {
  int64_t group, size, padded;
  Stack(const AttentionLayout& at, const QueryBlock& block)
      : group(at.group),
        size(block.end - block.begin),
        padded(steps_of(block.end - block.begin) * kTileSteps) {}
  int64_t rows() const { return group * padded; }
};

/// The left side of a product: panels one after the other, packed or rows in memory.
struct LeftSide {
  const BFloat16* data;
  int64_t panel;  // elements from panel to panel
  int64_t row_bytes = 2 * kTileSteps;
  int64_t step = kTileSize;
};
LeftSide packed(const BFloat16* data, int64_t steps) { return {data, steps * kTileSize}; }
LeftSide rows_of_keys(const BFloat16* data) {
  return {data, kTileRows * kKeyBlock, 2 * kKeyBlock, kTileSteps};
}

/// target (+)= left x right over `steps`. An odd last panel of the left side is followed by memory
/// that may be read.
void multiply(const TileOps& ops, const LeftSide& left, int64_t rows, const BFloat16* right,
              int64_t columns, int64_t steps, const TileTarget& target) {
  alignas(64) float products[kPair * kPair];
  for (int64_t i = 0; i < rows; i += kPair) {
    const BFloat16* first = left.data + i / kTileRows * left.panel;
    for (int64_t j = 0; j < columns; j += kPair) {
      const BFloat16* right0 = right + j / kTileRows * steps * kTileSize;
      const BFloat16* right1 = columns - j > kTileRows ? right0 + steps * kTileSize : nullptr;
      ops.multiply({first, first + left.panel, left.row_bytes, left.step}, right0, right1, steps,
                   false, products, nullptr);
      TileTarget moved = target;
      moved.data = static_cast<float*>(target.data) +
                   (target.transposed ? j * target.stride + i : i * target.stride + j);
      ops.store(products, std::min(kPair, rows - i), std::min(kPair, columns - j), moved);
    }
  }
}

using PackFn = void (*)(const TileFactor&, int64_t, int64_t, int64_t, int64_t, BFloat16*);
void pack(PackFn fn, const TileFactor& factor, int64_t rows, int64_t k, BFloat16* out) {
  for (int64_t i = 0; i < rows; i += kTileRows, out += steps_of(k) * kTileSize)
    fn(factor, i, std::min(kTileRows, rows - i), 0, k, out);
}

/// Heads of key-value head `kv` in rows of `from`, as left panels [stack, dim].
void pack_stack(const TileOps& ops, const BFloat16* from, int64_t row_width,
                const AttentionLayout& at, int64_t kv, const QueryBlock& block, const Stack& stack,
                BFloat16* out) {
  const int64_t panel = steps_of(at.dim) * kTileSize;
  for (int64_t h = 0; h < stack.group; ++h, out += stack.padded / kTileRows * panel) {
    const BFloat16* head = from + block.begin * row_width + (kv * at.group + h) * at.dim;
    pack(ops.pack_left, {head, row_width, false}, stack.size, at.dim, out);
  }
}

/// The same, transposed: left panels [dim, stack].
void pack_transposed_stack(const TileOps& ops, const BFloat16* from, int64_t row_width,
                           const AttentionLayout& at, int64_t kv, const QueryBlock& block,
                           const Stack& stack, BFloat16* out) {
  for (int64_t i = 0; i < at.dim; i += kTileRows) {
    for (int64_t h = 0; h < stack.group; ++h, out += stack.padded * kTileRows) {
      const BFloat16* head = from + block.begin * row_width + (kv * at.group + h) * at.dim;
      ops.pack_left({head, row_width, true}, i, std::min(kTileRows, at.dim - i), 0, stack.size,
                    out);
    }
  }
}

/// Memory of one thread for one block.
struct Scratch {
  AlignedBuffer<BFloat16> queries, outputs, transposed_queries, transposed_outputs, keys, values;
  AlignedBuffer<BFloat16> weights, gradients, packed_weights, packed_gradients;
  AlignedBuffer<float> scores, dp, sums, logsumexp, delta;
  AlignedBuffer<SoftmaxState> states;

  static Scratch& of_this_thread() {
    thread_local Scratch scratch;
    return scratch;
  }
};

struct Call {
  const TileOps& ops;
  const AttentionRows& row_ops;
  const BFloat16* heads;
  const AttentionLayout& at;
  const TreeAttentionShape& attention;

  ScoreForm form() const {
    return {static_cast<float>(attention.scale), static_cast<float>(attention.cap)};
  }
};

void attend_block(const Call& call, int64_t kv, const QueryBlock& block, BFloat16* y,
                  float* logsumexp) {
  const TileOps& ops = call.ops;
  const AttentionLayout& at = call.at;
  const Stack stack(at, block);
  Scratch& memory = Scratch::of_this_thread();
  const int64_t rows = stack.rows(), dim_steps = steps_of(at.dim);
  BFloat16* queries = memory.queries.reserve(panels_of(rows) * dim_steps * kTileSize);
  BFloat16* keys = memory.keys.reserve(panels_of(kKeyBlock) * dim_steps * kTileSize);
  BFloat16* values = memory.values.reserve(panels_of(at.dim) * kTileRows * kKeyBlock);
  BFloat16* weights = memory.weights.reserve(rows * kKeyBlock);
  float* scores = memory.scores.reserve(rows * kKeyBlock);
  float* sums = memory.sums.reserve(rows * at.dim);
  SoftmaxState* states = memory.states.reserve(rows);
  std::fill_n(sums, rows * at.dim, 0.0F);
  std::fill_n(states, rows, SoftmaxState{-INFINITY, 0});
  pack_stack(ops, call.heads, at.width, at, kv, block, stack, queries);

  for (const KeyRange& range : block.keys) {
    const int64_t num_keys = range.end - range.begin, key_steps = steps_of(num_keys);
    const BFloat16* row = call.heads + range.begin * at.width;
    pack(ops.pack_right, {row + at.key_column(kv), at.width, false}, num_keys, at.dim, keys);
    pack(ops.pack_right, {row + at.value_column(kv), at.width, true}, at.dim, num_keys, values);
    multiply(ops, packed(queries, dim_steps), rows, keys, num_keys, dim_steps,
             {.data = scores, .stride = kKeyBlock});
    for (int64_t h = 0; h < stack.group; ++h) {
      for (int64_t t = 0; t < stack.size; ++t) {
        const int64_t i = h * stack.padded + t;
        const Visible seen = visible(range, block.position + t, call.attention.window);
        const float factor =
            call.row_ops.softmax(scores + i * kKeyBlock, seen, key_steps * kTileSteps, call.form(),
                                 states[i], weights + i * kKeyBlock);
        if (factor == 1) continue;
        float* sum = sums + i * at.dim;
#pragma omp simd
        for (int64_t d = 0; d < at.dim; ++d) sum[d] *= factor;
      }
    }
    multiply(ops, rows_of_keys(weights), rows, values, at.dim, key_steps,
             {.data = sums, .stride = at.dim, .store = TileStore::kAddToFloat});
  }
  for (int64_t h = 0; h < stack.group; ++h) {
    const int64_t head = kv * at.group + h;
    for (int64_t t = 0; t < stack.size; ++t) {
      const int64_t i = h * stack.padded + t, token = block.begin + t;
      const float share = 1 / states[i].total;
      BFloat16* out = y + token * at.out_width + head * at.dim;
#pragma omp simd
      for (int64_t d = 0; d < at.dim; ++d) store(out + d, sums[i * at.dim + d] * share);
      logsumexp[token * at.heads + head] = states[i].largest + std::log(states[i].total);
    }
  }
}

void backward_block(const Call& call, int64_t kv, const QueryBlock& block, const BFloat16* dy,
                    const BFloat16* y, const float* logsumexp, float* dheads) {
  const TileOps& ops = call.ops;
  const AttentionLayout& at = call.at;
  const Stack stack(at, block);
  Scratch& memory = Scratch::of_this_thread();
  const int64_t rows = stack.rows(), dim_steps = steps_of(at.dim), row_steps = steps_of(rows);
  const int64_t stacked = panels_of(rows) * dim_steps * kTileSize;
  const int64_t transposed = (panels_of(at.dim) + 1) * row_steps * kTileSize;
  const int64_t by_key = panels_of(kKeyBlock) * dim_steps * kTileSize;
  BFloat16* queries = memory.queries.reserve(stacked);
  BFloat16* outputs = memory.outputs.reserve(stacked);
  BFloat16* transposed_queries = memory.transposed_queries.reserve(transposed);
  BFloat16* transposed_outputs = memory.transposed_outputs.reserve(transposed);
  BFloat16* keys = memory.keys.reserve(std::max(by_key, panels_of(at.dim) * kTileRows * kKeyBlock));
  BFloat16* values = memory.values.reserve(by_key);
  BFloat16* p = memory.weights.reserve(rows * kKeyBlock);
  BFloat16* ds = memory.gradients.reserve(rows * kKeyBlock);
  BFloat16* packed_p = memory.packed_weights.reserve(rows * kKeyBlock);
  BFloat16* packed_ds = memory.packed_gradients.reserve(rows * kKeyBlock);
  float* scores = memory.scores.reserve(rows * kKeyBlock);
  float* dp = memory.dp.reserve(rows * kKeyBlock);
  float* dq = memory.sums.reserve(rows * at.dim);
  float* delta = memory.delta.reserve(rows);
  float* statistic = memory.logsumexp.reserve(rows);
  pack_stack(ops, call.heads, at.width, at, kv, block, stack, queries);
  pack_stack(ops, dy, at.out_width, at, kv, block, stack, outputs);
  pack_transposed_stack(ops, call.heads, at.width, at, kv, block, stack, transposed_queries);
  pack_transposed_stack(ops, dy, at.out_width, at, kv, block, stack, transposed_outputs);
  std::fill_n(dq, rows * at.dim, 0.0F);
  for (int64_t h = 0; h < stack.group; ++h) {
    const int64_t head = kv * at.group + h;
    for (int64_t t = 0; t < stack.size; ++t) {
      const int64_t i = h * stack.padded + t, token = block.begin + t;
      const BFloat16* out = y + token * at.out_width + head * at.dim;
      const BFloat16* d_out = dy + token * at.out_width + head * at.dim;
      float dot = 0;
#pragma omp simd reduction(+ : dot)
      for (int64_t d = 0; d < at.dim; ++d) dot += load(out + d) * load(d_out + d);
      delta[i] = dot;
      statistic[i] = logsumexp[token * at.heads + head];
    }
    // Rows between two heads are factors of the sums over the stack.
    const int64_t gap = h * stack.padded + stack.size;
    std::fill_n(p + gap * kKeyBlock, (stack.padded - stack.size) * kKeyBlock, BFloat16(0));
    std::fill_n(ds + gap * kKeyBlock, (stack.padded - stack.size) * kKeyBlock, BFloat16(0));
  }

  for (const KeyRange& range : block.keys) {
    const int64_t num_keys = range.end - range.begin, key_steps = steps_of(num_keys);
    const TileFactor key_factor{call.heads + range.begin * at.width + at.key_column(kv), at.width};
    const TileFactor value_factor{call.heads + range.begin * at.width + at.value_column(kv),
                                  at.width};
    float* drow = dheads + range.begin * at.width;
    pack(ops.pack_right, key_factor, num_keys, at.dim, keys);
    pack(ops.pack_right, value_factor, num_keys, at.dim, values);
    multiply(ops, packed(queries, dim_steps), rows, keys, num_keys, dim_steps,
             {.data = scores, .stride = kKeyBlock});
    multiply(ops, packed(outputs, dim_steps), rows, values, num_keys, dim_steps,
             {.data = dp, .stride = kKeyBlock});
    for (int64_t h = 0; h < stack.group; ++h) {
      for (int64_t t = 0; t < stack.size; ++t) {
        const int64_t i = h * stack.padded + t, at_row = i * kKeyBlock;
        call.row_ops.backward(
            scores + at_row, dp + at_row, visible(range, block.position + t, call.attention.window),
            key_steps * kTileSteps, call.form(), statistic[i], delta[i], p + at_row, ds + at_row);
      }
    }
    // dV += P^T dy and dK += dS^T q as their transposes, dq += dS K.
    pack(ops.pack_right, {p, kKeyBlock, true}, num_keys, rows, packed_p);
    pack(ops.pack_right, {ds, kKeyBlock, true}, num_keys, rows, packed_ds);
    pack(ops.pack_right, {key_factor.data, at.width, true}, at.dim, num_keys, keys);
    TileTarget target{.stride = at.width, .store = TileStore::kAddToFloat, .transposed = true};
    target.data = drow + at.value_column(kv);
    multiply(ops, packed(transposed_outputs, row_steps), at.dim, packed_p, num_keys, row_steps,
             target);
    target.data = drow + at.key_column(kv);
    multiply(ops, packed(transposed_queries, row_steps), at.dim, packed_ds, num_keys, row_steps,
             target);
    multiply(ops, rows_of_keys(ds), rows, keys, at.dim, key_steps,
             {.data = dq, .stride = at.dim, .store = TileStore::kAddToFloat});
  }
  for (int64_t h = 0; h < stack.group; ++h) {
    for (int64_t t = 0; t < stack.size; ++t) {
      std::copy_n(dq + (h * stack.padded + t) * at.dim, at.dim,
                  dheads + (block.begin + t) * at.width + (kv * at.group + h) * at.dim);
    }
  }
}

}  // namespace

void tree_attention_tiles(const TileOps& ops, const AttentionRows& row_ops, const BFloat16* heads,
                          const std::vector<Segment>& segments, const RotaryShape& shape,
                          const TreeAttentionShape& attention, BFloat16* y, float* logsumexp) {
  const AttentionLayout at(shape);
  const Call call{ops, row_ops, heads, at, attention};
  const std::vector<QueryBlock> blocks =
      query_blocks(segments, all_of(segments), at, attention.window);
  parallel_chunks(static_cast<int64_t>(blocks.size()) * at.kv_heads, [&](int64_t chunk) {
    ops.begin();
    attend_block(call, chunk % at.kv_heads, blocks[static_cast<size_t>(chunk / at.kv_heads)], y,
                 logsumexp);
    ops.end();
  });
}

void tree_attention_backward_tiles(const TileOps& ops, const AttentionRows& row_ops,
                                   const BFloat16* dy, const BFloat16* y, const BFloat16* heads,
                                   const float* logsumexp, const std::vector<Segment>& segments,
                                   const RotaryShape& shape, const TreeAttentionShape& attention,
                                   float* dheads) {
  const AttentionLayout at(shape);
  const Call call{ops, row_ops, heads, at, attention};
  const auto forest = trees_of(segments);
  // One task owns the gradients of one tree's keys and values of one head: no two threads add to
  // the same number.
  parallel_chunks(static_cast<int64_t>(forest.size()) * at.kv_heads, [&](int64_t chunk) {
    const auto& tree = forest[static_cast<size_t>(chunk / at.kv_heads)];
    const int64_t kv = chunk % at.kv_heads;
    for (const size_t segment : tree) {
      for (int64_t row = segments[segment].begin; row < segments[segment].end; ++row) {
        std::fill_n(dheads + row * at.width + at.key_column(kv), at.dim, 0.0F);
        std::fill_n(dheads + row * at.width + at.value_column(kv), at.dim, 0.0F);
      }
    }
    ops.begin();
    for (const QueryBlock& block : query_blocks(segments, tree, at, attention.window))
      backward_block(call, kv, block, dy, y, logsumexp, dheads);
    ops.end();
  });
}

}  // namespace slime::kernels::cpu
