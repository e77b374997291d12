#include "kernels/cpu/tree_attention_avx2.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/gemm_avx2.h"
#include "kernels/cpu/numbers.h"
#include "kernels/cpu/thread_pool.h"

#include "kernels/cpu/target_avx2_begin.h"

namespace slime::kernels::cpu::avx2 {
namespace {

/// Buffers of one thread, sized for one block.
struct Scratch {
  std::vector<float> q, o, dq, s, dp, largest, total, delta, logsumexp;

  void reserve(const AttentionLayout& at) {
    const auto rows = static_cast<size_t>(at.group * at.query_block);
    const auto wide = rows * static_cast<size_t>(at.dim);
    if (q.size() >= wide && s.size() >= rows * kKeyBlock) return;
    for (auto* buffer : {&q, &o, &dq}) buffer->resize(wide);
    for (auto* buffer : {&s, &dp}) buffer->resize(rows * kKeyBlock);
    for (auto* buffer : {&largest, &total, &delta, &logsumexp}) buffer->resize(rows);
  }
};
Scratch& scratch(const AttentionLayout& at) {
  thread_local Scratch buffers;
  buffers.reserve(at);
  return buffers;
}

/// Stacks the queries of the heads that share key-value head `kv`: row h * size + t, times
/// `factor`.
void gather_rows(const float* from, int64_t row_width, const AttentionLayout& at, int64_t kv,
                 const QueryBlock& block, float factor, float* out) {
  for (int64_t h = 0; h < at.group; ++h) {
    for (int64_t t = block.begin; t < block.end; ++t, out += at.dim) {
      const float* row = from + t * row_width + (kv * at.group + h) * at.dim;
#pragma omp simd
      for (int64_t d = 0; d < at.dim; ++d) out[d] = row[d] * factor;
    }
  }
}

/// s[rows, keys] = q K^T for the stacked queries.
void scores(const float* q, const float* keys, const AttentionLayout& at, int64_t rows,
            int64_t num_keys, float* s) {
  gemm_block({rows, num_keys, at.dim}, {q, at.dim, 1}, {keys, at::kFloat, 1, at.width}, s,
             kKeyBlock, false);
}

/// One block of keys joins the running softmax: s becomes exp(s - largest), o and total are
/// rescaled.
void online_softmax(Scratch& buffers, const AttentionLayout& at, const QueryBlock& block,
                    const KeyRange& keys, const TreeAttentionShape& attention) {
  const int64_t size = block.end - block.begin, num_keys = keys.end - keys.begin;
  for (int64_t row = 0; row < at.group * size; ++row) {
    float* s = buffers.s.data() + row * kKeyBlock;
    const Visible seen = visible(keys, block.position + row % size, attention.window);
    if (attention.cap > 0)
      soft_cap(s + seen.low, seen.high - seen.low, 1, static_cast<float>(attention.cap));
    const float before = buffers.largest[static_cast<size_t>(row)];
    const float largest = std::max(before, largest_of(s + seen.low, seen.high - seen.low));
    float sum = 0;
    for (int64_t j = 0; j < seen.low; ++j) s[j] = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = seen.low; j < seen.high; ++j) {
      s[j] = fast_exp(s[j] - largest);
      sum += s[j];
    }
    for (int64_t j = seen.high; j < num_keys; ++j) s[j] = 0;
    if (largest == before) {  // also when the row saw nothing yet
      buffers.total[static_cast<size_t>(row)] += sum;
      continue;
    }
    const float factor = fast_exp(before - largest);
    buffers.total[static_cast<size_t>(row)] =
        buffers.total[static_cast<size_t>(row)] * factor + sum;
    buffers.largest[static_cast<size_t>(row)] = largest;
    float* o = buffers.o.data() + row * at.dim;
#pragma omp simd
    for (int64_t d = 0; d < at.dim; ++d) o[d] *= factor;
  }
}

void attend_block(const float* heads, const AttentionLayout& at, int64_t kv,
                  const QueryBlock& block, const TreeAttentionShape& attention, float* y,
                  float* logsumexp) {
  Scratch& buffers = scratch(at);
  const int64_t size = block.end - block.begin, rows = at.group * size;
  gather_rows(heads, at.width, at, kv, block, static_cast<float>(attention.scale),
              buffers.q.data());
  std::fill_n(buffers.o.begin(), rows * at.dim, 0.0F);
  std::fill_n(buffers.total.begin(), rows, 0.0F);
  std::fill_n(buffers.largest.begin(), rows, -INFINITY);
  for (const KeyRange& keys : block.keys) {
    const float* row = heads + keys.begin * at.width;
    scores(buffers.q.data(), row + at.key_column(kv), at, rows, keys.end - keys.begin,
           buffers.s.data());
    online_softmax(buffers, at, block, keys, attention);
    gemm_block({rows, at.dim, keys.end - keys.begin}, {buffers.s.data(), kKeyBlock, 1},
               {row + at.value_column(kv), at::kFloat, at.width, 1}, buffers.o.data(), at.dim,
               true);
  }
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t token = block.begin + row % size, head = kv * at.group + row / size;
    const float total = buffers.total[static_cast<size_t>(row)];
    const float* o = buffers.o.data() + row * at.dim;
    float* out = y + token * at.out_width + head * at.dim;
#pragma omp simd
    for (int64_t d = 0; d < at.dim; ++d) out[d] = o[d] / total;
    logsumexp[token * at.heads + head] =
        buffers.largest[static_cast<size_t>(row)] + std::log(total);
  }
}

void backward_block(const float* dy, const float* y, const float* heads, const float* logsumexp,
                    const AttentionLayout& at, int64_t kv, const QueryBlock& block,
                    const TreeAttentionShape& attention, float* dheads) {
  Scratch& buffers = scratch(at);
  const int64_t size = block.end - block.begin, rows = at.group * size;
  gather_rows(heads, at.width, at, kv, block, static_cast<float>(attention.scale),
              buffers.q.data());
  gather_rows(dy, at.out_width, at, kv, block, 1, buffers.o.data());
  std::fill_n(buffers.dq.begin(), rows * at.dim, 0.0F);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t token = block.begin + row % size, head = kv * at.group + row / size;
    const float* out = y + token * at.out_width + head * at.dim;
    const float* d_out = buffers.o.data() + row * at.dim;
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t d = 0; d < at.dim; ++d) dot += out[d] * d_out[d];
    buffers.delta[static_cast<size_t>(row)] = dot;
    buffers.logsumexp[static_cast<size_t>(row)] = logsumexp[token * at.heads + head];
  }
  for (const KeyRange& keys : block.keys) {
    const int64_t num_keys = keys.end - keys.begin;
    const float* row_of_keys = heads + keys.begin * at.width;
    float* drow = dheads + keys.begin * at.width;
    scores(buffers.q.data(), row_of_keys + at.key_column(kv), at, rows, num_keys, buffers.s.data());
    scores(buffers.o.data(), row_of_keys + at.value_column(kv), at, rows, num_keys,
           buffers.dp.data());  // dy V^T
    for (int64_t row = 0; row < rows; ++row) {
      float* s = buffers.s.data() + row * kKeyBlock;
      float* dp = buffers.dp.data() + row * kKeyBlock;
      const Visible seen = visible(keys, block.position + row % size, attention.window);
      const float statistic = buffers.logsumexp[static_cast<size_t>(row)];
      const float delta = buffers.delta[static_cast<size_t>(row)];
      for (int64_t j = 0; j < seen.low; ++j) s[j] = dp[j] = 0;
      if (attention.cap > 0) {
        const auto cap = static_cast<float>(attention.cap);
        soft_cap(s + seen.low, seen.high - seen.low, 1, cap);
        const float inverse_cap = 1 / cap;
#pragma omp simd
        for (int64_t j = seen.low; j < seen.high; ++j) {
          const float share = s[j] * inverse_cap;
          s[j] = fast_exp(s[j] - statistic);
          dp[j] = s[j] * (dp[j] - delta) * (1 - share * share);
        }
      } else {
#pragma omp simd
        for (int64_t j = seen.low; j < seen.high; ++j) {
          s[j] = fast_exp(s[j] - statistic);
          dp[j] = s[j] * (dp[j] - delta);
        }
      }
      for (int64_t j = seen.high; j < num_keys; ++j) s[j] = dp[j] = 0;
    }
    // dV += P^T dy, dK += dS^T (scale q), dq += dS K.
    gemm_block({num_keys, at.dim, rows}, {buffers.s.data(), 1, kKeyBlock},
               {buffers.o.data(), at::kFloat, at.dim, 1}, drow + at.value_column(kv), at.width,
               true);
    gemm_block({num_keys, at.dim, rows}, {buffers.dp.data(), 1, kKeyBlock},
               {buffers.q.data(), at::kFloat, at.dim, 1}, drow + at.key_column(kv), at.width, true);
    gemm_block({rows, at.dim, num_keys}, {buffers.dp.data(), kKeyBlock, 1},
               {row_of_keys + at.key_column(kv), at::kFloat, at.width, 1}, buffers.dq.data(),
               at.dim, true);
  }
  const auto scale = static_cast<float>(attention.scale);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t token = block.begin + row % size, head = kv * at.group + row / size;
    const float* dq = buffers.dq.data() + row * at.dim;
    float* out = dheads + token * at.width + head * at.dim;
#pragma omp simd
    for (int64_t d = 0; d < at.dim; ++d) out[d] = dq[d] * scale;
  }
}

}  // namespace

void tree_attention(const float* heads, const std::vector<Segment>& segments,
                    const RotaryShape& shape, const TreeAttentionShape& attention, float* y,
                    float* logsumexp) {
  const AttentionLayout at(shape);
  const std::vector<QueryBlock> blocks =
      query_blocks(segments, all_of(segments), at, attention.window);
  parallel_chunks(static_cast<int64_t>(blocks.size()) * at.kv_heads, [&](int64_t chunk) {
    attend_block(heads, at, chunk % at.kv_heads, blocks[static_cast<size_t>(chunk / at.kv_heads)],
                 attention, y, logsumexp);
  });
}

void tree_attention_backward(const float* dy, const float* y, const float* heads,
                             const float* logsumexp, const std::vector<Segment>& segments,
                             const RotaryShape& shape, const TreeAttentionShape& attention,
                             float* dheads) {
  const AttentionLayout at(shape);
  const auto forest = trees_of(segments);
  // One task owns the gradients of one tree's keys and values of one head: no two threads add to
  // the same number.
  parallel_chunks(static_cast<int64_t>(forest.size()) * at.kv_heads, [&](int64_t chunk) {
    const auto& tree = forest[static_cast<size_t>(chunk / at.kv_heads)];
    for (const QueryBlock& block : query_blocks(segments, tree, at, attention.window)) {
      backward_block(dy, y, heads, logsumexp, at, chunk % at.kv_heads, block, attention, dheads);
    }
  });
}

}  // namespace slime::kernels::cpu::avx2

#include "kernels/cpu/target_end.h"
