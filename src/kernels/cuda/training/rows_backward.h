#pragma once

/// Gradients of the row kernels (kernels/cuda/rows/rows.h, attention.h), and what training adds to
/// them. Plain pointers; rows are contiguous and start at multiples of 16 bytes. Asynchronous on
/// `stream`.
///
/// Gradients of weights are summed per thread block into `partial_BX` (float32, B =
/// num_partial_rows()), then added to the weight's gradient by add_column_sums: the same bits every
/// time.

#include <cstdint>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/launch.cuh"

namespace slime::kernels::cuda {

/// Thread blocks that sum weight gradients; the same for every call.
int64_t num_partial_rows();

/// grad_X += sum over the rows of partial_BX.
void add_column_sums(const float* partial_BX, int64_t rows, int64_t columns, float* grad_X,
                     Stream stream);

/// Columns of add_rows() are a multiple.
inline constexpr int kAddedColumns = 4;

struct AddRowsCall {
  Number number = Number::kBFloat16;  // of x, and of the sums unless they are float32
  bool has_float_sum = true;
  const void* x_TH = nullptr;
  const int64_t* sorted_T = nullptr;  // rows of the sums, ascending
  const int64_t* from_T = nullptr;    // rows of x that are added to them
  void* sum_VH = nullptr;
  int64_t rows = 0, columns = 0;  // T, H
};

/// sum_VH[sorted_T[t]] += x_TH[from_T[t]], in the order of t, in float32.
void add_rows(const AddRowsCall& call, Stream stream);

struct NormBackwardCall {
  Number number = Number::kBFloat16;
  const void* dy_TH = nullptr;
  const void* x_TH = nullptr;  // input of the norm
  const void* weight_H = nullptr;
  bool has_float_weight = false;  // in float32, whatever the rows are
  const void* dsum_TH = nullptr;  // added to dx; null: nothing
  void* dx_TH = nullptr;
  float* partial_BH = nullptr;  // null: the weight is frozen
  int64_t rows = 0, hidden = 0;
  float eps = 0;
};

/// With s = 1 / sqrt(mean(x^2) + eps), n = x s and g = dy w: dx = s (g - n mean(g n)) + dsum.
void rms_norm_backward(const NormBackwardCall& call, Stream stream);

/// Gradient of silu(gate) * up, rows [dgate; dup].
void swiglu_backward(Number number, const void* dy_TF, const void* gate_up_T2F, void* dgate_up_T2F,
                     int64_t rows, int64_t width, Stream stream);

struct RotateBackwardCall {
  RotateCall forward;             // qkv_TE: input of the norm, null without norms; out_TE: dqkv
  const void* dy_TE = nullptr;    // gradient of the rotated heads
  float* q_partial_BD = nullptr;  // [B N, D]; null: frozen or no norm
  float* k_partial_BD = nullptr;  // [B K, D]
};

/// Rotates the gradients of query and key heads back and through their norms; values' are copied.
void norm_rotate_backward(const RotateBackwardCall& call, Stream stream);

/// Of a chunk of kSampleChunk logits (sampling/sample.h).
struct ChunkSums {
  float largest, sum, weighted;
};

struct SoftmaxCall {
  const float* logits_RV = nullptr;
  const int64_t* target_R = nullptr;
  float temperature = 1;
  ChunkSums* sums_RC = nullptr;  // room for sample_chunks(vocabulary) of each row
  float* logprob_R = nullptr;
  float* entropy_R = nullptr;
  float* logsumexp_R = nullptr;
  int64_t rows = 0, vocabulary = 0;
};

/// False for vocabularies that sampling does not have either.
bool has_softmax_statistics(int64_t vocabulary);
/// Per row of logits u = logits / temperature: log-prob of the target, entropy, logsumexp. The log-prob
/// has the bits of one that is sampled from these logits.
void softmax_statistics(const SoftmaxCall& call, Stream stream);

struct SoftmaxBackwardCall {
  const float* logits_RV = nullptr;
  const int64_t* target_R = nullptr;
  const float* logsumexp_R = nullptr;
  const float* entropy_R = nullptr;
  const float* dlogprob_R = nullptr;
  const float* dentropy_R = nullptr;  // null: none
  void* dlogits_RV = nullptr;         // may be logits_RV when `number` is float32
  Number number = Number::kBFloat16;  // of dlogits
  float temperature = 1;
  float inverse_cap = 0;  // of the cap that the logits have (kernels/soft_cap.h); 0: none
  int64_t rows = 0, vocabulary = 0;
};

/// x = cap * tanh(x / cap) for x[0 .. size).
void soft_cap(float* x, int64_t size, float cap, Stream stream);

/// d log-prob / d logits = (1[target] - p) / temperature, d entropy / d logits = -p (log p +
/// entropy) / temperature; with a cap of the logits before it.
void softmax_backward(const SoftmaxBackwardCall& call, Stream stream);

/// Attention over two sets of keys from the attention over each: (out, logsumexp) becomes that of
/// both. Rows where more_logsumexp is -infinity stay. Dimensions: T rows, N heads of size D.
void merge_attention(Number number, void* out_TND, float* logsumexp_TN, const void* more_TND,
                     const float* more_logsumexp_TN, int64_t rows, int64_t heads, int64_t head_dim,
                     Stream stream);

}  // namespace slime::kernels::cuda
