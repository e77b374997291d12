#pragma once

/// Shapes and scalars of layers that are no tensors: rotary heads, attention, logits.

#include <cstdint>

namespace slime::kernels {

/// How a fused projection becomes rotated heads.
struct RotaryShape {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  double norm_eps = 0;  // of the q/k norm
};

/// Parameters of TreeAttention's kernel besides the tensors.
struct TreeAttentionShape {
  double scale = 1;
  int64_t window = 0;     // 0: all earlier tokens
  double cap = 0;         // of the scaled scores (kernels/soft_cap.h); 0: none
  bool in_pages = false;  // forward by tree_attention_in_pages()
  /// Backward adds in one order, so that two runs have equal bits; otherwise a GPU may add as threads arrive.
  bool ordered_backward = false;
};

/// How logits enter the softmax: divided by the temperature, after a cap that they already have.
struct LogitForm {
  double temperature = 1;
  double cap = 0;  // kernels/soft_cap.h; 0: none
};

}  // namespace slime::kernels
