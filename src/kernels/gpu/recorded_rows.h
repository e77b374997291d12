#pragma once

/// Batch sizes of recorded decode steps: a step with fewer rows is padded to the next one, and of several
/// engines that share a batch of 512 one has a few rows above 256. They come again and again, so what is chosen by measuring (kernels of products) is chosen for these.
/// Each costs a few megabytes and, when it first appears, some tens of milliseconds.

#include <algorithm>
#include <array>
#include <cstdint>

namespace slime::kernels {

inline constexpr auto kRecordedRows =
    std::to_array<int64_t>({1,   2,   4,   8,   16,  24,  32,  48,  64,  96,  128, 160, 192, 224,
                            256, 272, 288, 320, 352, 384, 416, 448, 480, 512, 640, 768, 896, 1024});

constexpr bool is_recorded_size(int64_t rows) {
  return std::ranges::binary_search(kRecordedRows, rows);
}

}  // namespace slime::kernels
