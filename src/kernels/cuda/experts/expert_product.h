#pragma once

/// The products of experts in a decode step: each visited expert's weights are read once and
/// multiplied with the rows that visit it.
///
/// A visit v is one choice of one row: row v / K, choice v % K. Nothing waits for the host, which
/// does not know who visits whom: every thread block sorts the visits by expert itself. Bound by the
/// bandwidth of reading the visited experts (compute capability 9.0).
///
/// Dimensions: V = T K visits, E experts, I inputs, U units: gate-up pairs, or outputs.

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace slime::kernels::cuda {

/// One product of all visits. Pointers are device memory, 16-byte aligned, bfloat16 and contiguous
/// unless a comment says otherwise.
struct ExpertProduct {
  bool is_gated = false;          // y = silu(gate) * up; weights [E, 2U, I], gates first
  const void* x = nullptr;        // is_gated: [T, I], a visit reads its row; otherwise [V, I]
  const void* weights = nullptr;  // [E, U, I], or [E, 2U, I]
  const int32_t* expert_V = nullptr;
  void* y_VU = nullptr;
  int rows = 0, per_token = 0, experts = 0, inputs = 0, units = 0;  // T, K, E, I, U
  /// [2] sums: one more call, so many more experts that have a visit. Null: not counted.
  unsigned long long* visited = nullptr;
  int bytes_in_flight = 0;  // of a thread block's weights; 0: what measures best
  int chunk_rows = 0;       // that are multiplied at once: 8, 16, 32, 64; 0: what measures best
};

inline constexpr int kMostExpertRows = 256, kMostExpertVisits = 2560, kMostExperts = 512;

/// Whether sizes are within reach; `inputs` and `units` are multiples of eight.
bool has_expert_product(int64_t rows, int64_t per_token, int64_t experts, int64_t inputs,
                        int64_t units);

/// Asynchronous on `stream`. expert_V is read before the preceding kernel has ended unless
/// is_gated: the gated product comes right before the other one, and waits for who wrote expert_V.
/// Throws std::runtime_error for a failed launch.
void expert_product(const ExpertProduct& call, cudaStream_t stream);

}  // namespace slime::kernels::cuda
