#pragma once

/// A matrix of a linear layer: its numbers, how they are stored, and what is added to its product.
///
/// A plain matrix is the tensor itself. Another format has codes, and a factor for each block of them:
///   number(o, i) = code(o, i) * scales(scale_row_O(o), i / columns of a block)
/// Parts of a fused matrix ([q; k; v], the experts of a layer) have blocks of their own, which begin with
/// the part: a range of rows is a view (docs/decisions/0117-matrix.md).
///
/// Dimensions: O outputs, I inputs, E matrices in one (experts), B rows and C columns of blocks.

#include <cstdint>
#include <string>
#include <utility>

#include "core/tensor.h"
#include "kernels/param.h"

namespace slime::kernels {

enum class MatrixFormat : uint8_t {
  kPlain,        // bfloat16, float16, float32 or float64
  kFp8Blocks,    // float8 e4m3, a factor for 128 x 128 of them
  kFp8Channels,  // float8 e4m3, a factor for each output
};

/// Low-rank additions to a product (kernels/adapters.h). A kernels::Device refuses a matrix that has some.
struct MatrixAdapters;

struct Matrix {
  Matrix() = default;
  Matrix(Tensor plain) : values(std::move(plain)) {}   // NOLINT(google-explicit-constructor)
  Matrix(const Param& plain) : values(plain.value) {}  // NOLINT(google-explicit-constructor)

  Tensor values;       // [O, I], of experts [E, O, I]: numbers, or codes
  Tensor scales;       // float32 [B, C], of experts [E, B, C]; undefined: plain
  Tensor scale_row_O;  // int64 [O]: the row of scales of each output; undefined: plain
  const MatrixAdapters* adapters = nullptr;  // null: none
  int64_t adapter_row = 0;    // where outputs of this range begin in the matrix of the adapters
  uint64_t adapter_pass = 0;  // a pass with gradients: names the masks of its dropout
  const std::string* name = nullptr;  // in files, for messages; null: it has none
  MatrixFormat format = MatrixFormat::kPlain;

  bool defined() const { return values.defined(); }
  bool is_plain() const { return format == MatrixFormat::kPlain && adapters == nullptr; }
  int64_t outputs() const { return values.size(-2); }
  int64_t inputs() const { return values.size(-1); }

  /// The numbers. Throws BugError with the matrix's name where it is not plain.
  const Tensor& plain() const {
    if (!is_plain()) refuse();
    return values;
  }

  /// The matrix itself.
  Matrix without_adapters() const;
  /// Outputs [begin, begin + count).
  Matrix rows(int64_t begin, int64_t count) const;
  /// [E O, I] as E matrices of the same shape and parts, [E, O, I].
  Matrix stacked(int64_t count) const;
  /// One of [E, O, I].
  Matrix of_expert(int64_t expert) const;

 private:
  [[noreturn]] void refuse() const;
};

/// A matrix that is trained: views into the flat buffers of weights and gradients (kernels/param.h).
struct MatrixParam {
  MatrixParam() = default;
  MatrixParam(Matrix of_matrix, Tensor of_grad)
      : matrix(std::move(of_matrix)), grad(std::move(of_grad)) {}
  MatrixParam(const Param& plain)  // NOLINT(google-explicit-constructor)
      : matrix(plain.value), grad(plain.grad) {}

  Matrix matrix;
  Tensor grad;  // of the numbers, float32 (float64); undefined outside training

  bool defined() const { return matrix.defined(); }
  /// As Matrix::rows().
  MatrixParam rows(int64_t begin, int64_t count) const;
};

}  // namespace slime::kernels
