#include "core/out_of_memory.h"

#include <algorithm>
#include <array>
#include <new>
#include <string_view>

namespace slime {

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const OutOfMemory*>(&error) != nullptr)
    return true;
  // LibTorch's allocator of a GPU, the CUDA runtime, LibTorch's allocator on the CPU, cuBLAS,
  // cuDNN.
  constexpr auto kWords =
      std::to_array<std::string_view>({"out of memory", "can't allocate memory", "ALLOC_FAILED"});
  const std::string_view text = error.what();
  return std::ranges::any_of(
      kWords, [&](std::string_view words) { return text.find(words) != std::string_view::npos; });
}

}  // namespace slime
