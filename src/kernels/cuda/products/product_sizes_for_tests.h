#pragma once

namespace slime::kernels::cuda {

/// Of a decoder block's products.
struct ProductSizes {
  int hidden, attended, width, heads;
};

/// Of models that people train.
inline constexpr ProductSizes kTrainedModels[] = {
    {576, 576, 1536, 960},      {896, 896, 4864, 1152},      {1024, 2048, 3072, 4096},
    {1536, 1536, 8960, 2048},   {2048, 2048, 8192, 3072},    {2560, 4096, 9728, 6144},
    {3584, 3584, 18944, 4608},  {4096, 4096, 14336, 6144},   {5120, 5120, 25600, 7168},
    {8192, 8192, 28672, 10240}, {16384, 16384, 53248, 18432}};

}  // namespace slime::kernels::cuda
