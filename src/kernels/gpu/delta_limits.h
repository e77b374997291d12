#pragma once

/// Gated delta nets that a GPU's kernels have; others are refused where the model is loaded.

namespace slime::kernels {

inline constexpr int kMostDeltaKeys = 128;    // size of a key
inline constexpr int kMostDeltaValues = 256;  // and of a value
inline constexpr int kMostDeltaTaps = 8;

}  // namespace slime::kernels
