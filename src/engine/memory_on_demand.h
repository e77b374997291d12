#pragma once

/// Large arrays whose memory the system hands out as it is touched.

#include <cstdint>

#include "core/tensor.h"

namespace slime::engine {

/// count * size bytes that read as zeros; in huge pages, where there are some. Throws OutOfMemory that
/// says what was to lie there.
Tensor zeros_on_demand(int64_t count, int64_t size, const char* what);

/// Gives the memory back, but for what shares a page with others. What was given back reads as zeros.
void give_back_memory(const Tensor& bytes);

}  // namespace slime::engine
