#pragma once

/// y = x W^T of e4m3 codes with blocks' factors (compute capability 9.0).
///
///   y(t, o) = sum over blocks b of 128 inputs: x_factor(b, t) w_factor(row(o), b) dot_b(t, o)
///
/// dot_b by the tensor cores, the sum over b in float32. Four kernels (docs/decisions/0127-fp8-rollout.md):
///
///   narrow_product    1, 2 rows      x is normed and made codes within; splits inputs among warps
///   few_product       1 to 128 rows  bound by the bytes of the codes; SwiGLU or split-K behind it
///   many_product      any rows       tiles of 128 or 256 rows by 128 outputs; split-K

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/fp8/few_tiling.h"
#include "kernels/cuda/fp8/quantise.h"
#include "kernels/cuda/products/batch_product.h"

namespace slime::kernels::cuda::fp8 {

/// Device memory, contiguous, 16-byte aligned; inputs a multiple of 16.
struct Codes {
  const uint8_t* codes_OI = nullptr;
  const float* factors_BC = nullptr;      // C blocks of inputs
  const int64_t* factor_row_O = nullptr;  // the row of factors of each output
};

struct Product {
  using Epilogue = BatchProduct::Epilogue;
  Rows x;
  Codes weight;
  const void* bias_O = nullptr;           // bfloat16; null: none
  int rows = 0, inputs = 0, outputs = 0;  // outputs a multiple of 8
  Epilogue epilogue =
      Epilogue::kStore;       // kSwiglu, kSplitK: of few_product, and kSwiglu of narrow_product
  bool float_result = false;  // kStore: y_TO is float32
  void* y = nullptr;          // bfloat16 [T, O]; kSwiglu [T, O / 2]; kSplitK float32 [S, T, O]
};

bool has_products();  // of this device

void few_product(const Product& product, cudaStream_t stream);
/// S with Epilogue::kSplitK.
int few_product_splits(int inputs, int outputs);

void many_product(const Product& product, cudaStream_t stream);
int many_product_splits(int rows, int inputs, int outputs);

/// x of a product: s = bfloat16(residual + the sums of added), divided by its root mean square, times weight.
struct Norm {
  const void* residual_TI = nullptr;  // bfloat16
  const float* added_STI = nullptr;   // S partial sums
  int splits = 0;                     // S
  const void* weight_I = nullptr;     // bfloat16; null: the product has x as it is
  void* sum_TI = nullptr;             // bfloat16, result s; must not alias the residual
  float eps = 0;
};
/// Inputs are a multiple of 128.
bool has_narrow_product(int64_t rows, int64_t inputs);
/// `x_TI`: bfloat16, not read with a norm; product.x is not read. With a norm without split-K; a bias is of the
/// first split. As many splits as few_product has.
void narrow_product(const Product& product, const void* x_TI, const Norm& norm,
                    cudaStream_t stream);

}  // namespace slime::kernels::cuda::fp8
