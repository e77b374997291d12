#pragma once

/// Attention between ranges of packed rows by LibTorch's fused scaled dot-product attention (SDPA), forward and backward,
/// a pair of ranges at a time. What training on AMD's GPUs is made of (src/kernels/hip/packed_attention.cpp); tests run it on
/// the CPU, which has the same two functions under other names.
///
/// Nothing of the size of rows x keys is kept: beyond inputs and results there are, of one pair at a time, its results and,
/// on the way back, gradients of keys and values for every query head.
///
/// Dimensions: T rows, N query heads, K key-value heads, D head size, E = (N + 2 K) D, G = N / K. A row of heads_TE is
/// [queries; keys; values].

#include <functional>
#include <map>
#include <string>
#include <tuple>

#include "core/tensor.h"
#include "kernels/gpu/attention_levels.h"
#include "kernels/layer_shapes.h"

namespace slime::kernels::hip {

struct FusedForward {
  Tensor out;        // [K, G, rows, D]
  Tensor logsumexp;  // float32 [K, G, rows]
};
struct FusedBackward {
  Tensor dq, dk, dv;  // [K, G, rows or keys, D]
};

/// LibTorch's functions. Queries [K, G, rows, D], keys and values [K, G, keys, D], whose heads of a group are one and the
/// same memory; `causal`: as many rows as keys. `logsumexp` of backward() is as forward() has it.
struct FusedFunctions {
  std::function<FusedForward(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                             double scale)>
      forward;
  std::function<FusedBackward(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                              const Tensor& out, const Tensor& logsumexp, bool causal,
                              double scale)>
      backward;
};
/// LibTorch's functions for a CPU, or for a GPU of its CUDA or ROCm build.
FusedFunctions fused_functions(at::Device device);

/// Not for several threads at once.
class FusedAttention final {
 public:
  /// `tell` gets a sentence for each precision and head size that has a problem().
  FusedAttention(FusedFunctions functions, std::function<void(const std::string&)> tell)
      : functions_(std::move(functions)), tell_(std::move(tell)) {}

  /// 16-bit precisions, and heads of up to 256 that are a multiple of 8.
  static bool may_have(at::ScalarType type, const RotaryShape& heads);

  /// Why rows of this precision and head size are not attended by it; empty: they are. Tried on the device the first time:
  /// values, gradients and statistics of small ranges against plain products. Some libraries have the statistics to the
  /// base of 2, which is found out too.
  const std::string& problem(at::ScalarType type, int64_t head_dim, at::Device device);

  /// As kernels/cuda/attention/packed_attention.h has them, for heads without a problem().
  void forward(const Tensor& heads_TE, const Tensor& keys_CX, const AttentionLevel& level,
               const RotaryShape& heads, double scale, Tensor out_TC, Tensor logsumexp_TN);
  void backward(const Tensor& dy_TC, const Tensor& y_TC, const Tensor& heads_TE,
                const Tensor& logsumexp_TN, const AttentionLevel& level, const RotaryShape& heads,
                double scale, Tensor dheads_TE);

 private:
  struct Tried {
    std::string problem;
    double unit = 1;  // of statistics: natural logarithms are the library's times this
  };
  std::string found_problem(at::ScalarType type, int64_t head_dim, at::Device device, Tried& tried);
  double unit_of(const Tensor& heads_TE, const RotaryShape& heads) const;

  const FusedFunctions functions_;
  const std::function<void(const std::string&)> tell_;
  std::map<std::pair<at::ScalarType, int64_t>, Tried> tried_;
};

}  // namespace slime::kernels::hip
