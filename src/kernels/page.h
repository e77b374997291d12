#pragma once

/// Page size of the KV cache in tokens, the same on every device: engine,
/// plans and kernels take it from here. The kernels' tiles are laid out for sixteen.

#include <cstdint>

namespace slime::kernels {

inline constexpr int64_t kPageTokens = 16;

}  // namespace slime::kernels
