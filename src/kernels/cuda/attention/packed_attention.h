#pragma once

/// Attention between ranges of packed rows by cuDNN's fused kernels, forward and backward, without
/// padding. What the trainer's tree attention on a GPU is made of.
///
/// Dimensions: T rows, N query heads, K key-value heads, D head size, E = (N + 2 K) D. A row of
/// heads_TE is [queries; keys; values]. Precisions bfloat16 and float16, head sizes up to 128.
///
/// Keys may be rows of another tensor, keys_CX with rows [keys; values]: the engine's, gathered from
/// its pages.
///
/// A plan is compiled by cuDNN per shape class (number of pairs and longest range, both rounded up,
/// and heads) in some ten milliseconds, and remembered. Not for several threads at once; tables of
/// the last levels stay on the stream that was current when they were made.

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "core/tensor.h"
#include "kernels/device.h"
#include "kernels/gpu/attention_levels.h"

namespace slime::kernels::cuda {

/// Shape classes: a count is rounded up to a multiple of a fraction of its leading power of two.
/// Coarse ones need few plans; the padding is tiles and pairs without rows, which return at once.
struct PlanRounding {
  int64_t row_fractions = 4;
  int64_t pair_fractions = 2;
  int64_t least_pairs = 4;
};

class PackedAttention final {
 public:
  explicit PackedAttention(const PlanRounding& rounding = {});
  ~PackedAttention();
  PackedAttention(const PackedAttention&) = delete;
  PackedAttention& operator=(const PackedAttention&) = delete;

  static bool supports(at::ScalarType type, const RotaryShape& heads);
  /// The same for heads of up to 256, of which not every library and not every GPU has kernels forward
  /// and backward: where there may be some, the library is asked once.
  static bool may_have_kernels(at::ScalarType type, const RotaryShape& heads);
  bool has_kernels(at::ScalarType type, const RotaryShape& heads, const TreeAttentionShape& shape);

  /// Writes out_TC [T, N V] and logsumexp_TN (float32) in the rows that are queries of the level.
  /// keys_CX [C, K (D + V)]: where the level's keys are; undefined: in heads_TE. Values have the size V
  /// that out_TC has room for. Of heads_TE only queries are read then.
  void forward(const Tensor& heads_TE, const Tensor& keys_CX, const AttentionLevel& level,
               const RotaryShape& heads, const TreeAttentionShape& shape, Tensor out_TC,
               Tensor logsumexp_TN);

  /// Whether backward() may be asked for one order of sums (TreeAttentionShape::ordered_backward). The
  /// library is asked once. Its scratch is quadratic: levels should be divided (kernels/gpu/ordered_levels.h).
  bool has_ordered_backward(at::ScalarType type, const RotaryShape& heads,
                            const TreeAttentionShape& shape);

  /// Writes into dheads_TE: queries' gradients in rows that are queries, keys' and values' in rows
  /// that are keys. y_TC and logsumexp_TN may be those of a softmax over more keys than the level
  /// has: then these are the level's shares.
  void backward(const Tensor& dy_TC, const Tensor& y_TC, const Tensor& heads_TE,
                const Tensor& logsumexp_TN, const AttentionLevel& level, const RotaryShape& heads,
                const TreeAttentionShape& shape, Tensor dheads_TE);

 private:
  struct Graph;
  struct Tables;
  /// Numbers from row to row.
  struct Strides {
    int64_t query = 0, key = 0, out = 0;
    bool operator==(const Strides&) const = default;
  };
  enum class Direction { kForward, kBackward, kOrderedBackward };
  /// direction, type, pairs, query rows, key rows, N, K, D, causal, window, strides, scale.
  using Key = std::tuple<Direction, at::ScalarType, int64_t, int64_t, int64_t, int64_t, int64_t,
                         int64_t, bool, int64_t, int64_t, int64_t, int64_t, double>;

  Key key_for(Direction direction, const Strides& strides, at::ScalarType type,
              const AttentionLevel& level, const RotaryShape& heads,
              const TreeAttentionShape& shape) const;
  Key smallest_key(Direction direction, at::ScalarType type, bool is_causal,
                   const RotaryShape& heads, const TreeAttentionShape& shape) const;
  /// Whether the library has plans for the smallest levels of this kind, causal and without a mask.
  bool has_plans(Direction direction, at::ScalarType type, const RotaryShape& heads,
                 const TreeAttentionShape& shape);
  void launch_backward(Direction direction, const Tensor& dy_TC, const Tensor& y_TC,
                       const Tensor& heads_TE, const Tensor& logsumexp_TN,
                       const AttentionLevel& level, const RotaryShape& heads,
                       const TreeAttentionShape& shape, const Tensor& dheads_TE);
  Graph& graph_for(const Key& key);
  const Tables& tables_for(const AttentionLevel& level, const RotaryShape& heads,
                           const Strides& strides, const Tensor& like);

  const PlanRounding rounding_;
  void* handle_ = nullptr;  // cudnnHandle_t
  std::map<Key, std::unique_ptr<Graph>> graphs_;
  std::map<Key, bool> has_plans_;                // by the smallest causal key
  std::vector<std::unique_ptr<Tables>> tables_;  // of the last few levels: the same for all layers
};

}  // namespace slime::kernels::cuda
