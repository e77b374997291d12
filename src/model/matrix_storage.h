#pragma once

/// Flat buffers of a network's weights, and where a matrix in another format than plain lies in them.
///
///   flat_N       numbers in the trained precision; what optimizers and collectives see
///   constants_C  float32 (NamedConstant)
///   codes_Q      bytes of the codes of formatted matrices
///   scales_S     float32, their factors
///
/// A matrix fused from several tensors has the blocks of each (kernels/matrix.h).

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/matrix.h"
#include "model/slices.h"

namespace slime::model {

struct WeightBuffers {
  Tensor flat_N, constants_C;
  Tensor codes_Q, scales_S;  // undefined where all matrices are plain

  bool defined() const { return flat_N.defined(); }
  int64_t num_bytes() const;
  /// Those that there are but for constants, in the order in which they travel (model/whole_weights.h).
  std::vector<Tensor> numbers() const;
  /// Room for as much, on the same device.
  WeightBuffers empty_like() const;
  /// Views of as much of these as there is in `shorter`, from the beginning: of a network with draft layers what one
  /// without them has.
  WeightBuffers beginning_as(const WeightBuffers& shorter) const;
  /// Of buffers of the same shapes. Where `non_blocking`, after what the current stream has to do.
  void copy_from(const WeightBuffers& other, bool non_blocking = false) const;
};

/// A tensor of files that a fused matrix has rows of.
struct MatrixPart {
  std::vector<int64_t> full_shape;  // [O, I], or [E, O, I]
  Slices slices;                    // of this rank
};

/// Why a rank cannot hold these slices in this format: they cut blocks. Empty: it can.
std::string slice_problem(kernels::MatrixFormat format, const MatrixPart& part);

/// Elements at whose multiples codes and factors of a matrix begin: a cache line; kernels read whole packs.
inline constexpr int64_t kStorageAlignment = 128;

/// Of the factors of a tensor of files, or of slices of one: [B, C] of [O, I], [E, B, C] of [E, O, I].
std::vector<int64_t> factors_shape(kernels::MatrixFormat format, std::vector<int64_t> shape);
/// The factors of slices of whole blocks of such a tensor.
Slices factor_slices(kernels::MatrixFormat format, const Slices& slices,
                     const std::vector<int64_t>& full_shape);
/// Codes [O, I] and factors [B, C] of a whole tensor, in the shape of both for stacks, [E O, I] and [E B, C]; on
/// the device of its numbers.
std::vector<Tensor> codes_of(kernels::MatrixFormat format, const Tensor& plain);

class MatrixStorage {
 public:
  /// Behind `code_bytes` and `num_scales` that others take in the buffers, which grow by what this one takes.
  /// No part has a slice_problem().
  MatrixStorage(kernels::MatrixFormat format, const std::vector<MatrixPart>& parts,
                int64_t& code_bytes, int64_t& num_scales);

  /// Points the matrix at its place.
  void point_at(const WeightBuffers& buffers, kernels::Matrix& matrix) const;
  /// Makes codes and factors of the matrix's numbers, [O, I] of all parts.
  void convert(const Tensor& plain, const WeightBuffers& to) const;
  /// Codes and factors of one of the parts.
  std::vector<Tensor> part(const WeightBuffers& buffers, size_t index) const;

 private:
  /// A matrix with blocks of its own, and the part that it is of: a slice of rows, of an expert.
  struct Piece {
    size_t part;
    int64_t rows, scale_rows;
  };
  Tensor codes_in(const WeightBuffers& buffers) const;
  Tensor scales_in(const WeightBuffers& buffers) const;

  kernels::MatrixFormat format_;
  int64_t inputs_ = 0, outputs_ = 0;
  std::vector<Piece> pieces_;
  int64_t scale_rows_ = 0, scale_columns_ = 0;
  int64_t codes_begin_ = 0, scales_begin_ = 0;
};

}  // namespace slime::model
