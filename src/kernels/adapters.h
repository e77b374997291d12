#pragma once

/// Low-rank additions to products (LoRA, arXiv 2106.09685), and products of matrices that may have some.
///
///   y = x W^T + b + sum over pairs of s (x A^T) B^T, in the outputs of the pair
///
/// x A^T and what follows are float32 (float64), added before y is rounded; of experts after their base
/// product is. A row's numbers do not depend on the other rows.
///
/// Dimensions: T rows, I inputs, O outputs, R rank, E experts, S rows that lie by expert.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "kernels/group_starts.h"
#include "kernels/matrix.h"

namespace slime::kernels {

struct LowRankPair {
  int64_t begin = 0, end = 0;  // outputs of the matrix, of each expert
  Param a;                     // [R, I], of experts [E R, I] or [E, R, I]; of an embedding [R, V]
  Param b;                     // [O, R], of experts [E O, R] or [E, O, R]
  int64_t experts = 0;         // that they are of; 0: of one matrix
  double scale = 0;
  uint64_t number = 0;  // among all of the network, for the mask of its dropout
};

/// Rows of a pass on a GPU by what they take: tiles of 16 rows that take one adapter, int32 on the device. Each row is
/// in one tile.
struct AdapterTiles {
  static constexpr int64_t kRows = 16;
  /// So many tiles hold `rows` rows, whichever of so many adapters, or none, they take.
  static constexpr int64_t most(int64_t rows, int64_t adapters) {
    return (rows + (kRows - 1) * std::min(rows, adapters + 1)) / kRows;
  }

  Tensor slot_N;  // -1: no adapter
  Tensor row_N;   // [16 N], -1: no row

  bool defined() const { return slot_N.defined(); }
  /// int64 [16 N]: of each row its slot, -1 also behind the last one.
  Tensor slots() const;
};

/// Which adapter the rows of a pass take: of a network, whose forward passes set it.
struct AdapterRows {
  struct Share {
    int64_t slot = 0;
    Tensor row_S;  // int64; undefined: all rows
  };

  bool is_on = true;  // false: the matrices alone
  std::vector<Share> shares{Share{}};
  AdapterTiles tiles;  // in the place of shares
  Tensor slot_S;  // int64 on the device, likewise: of rows that were picked from those of tiles
  double dropout = 0;  // of x before A, in passes with a number
  uint64_t seed = 0;
  uint64_t pass = 0;

  bool takes_one() const {
    return !tiles.defined() && !slot_S.defined() && shares.size() == 1 &&
           !shares.front().row_S.defined();
  }
  /// The same of rows that were picked from those of the pass.
  AdapterRows of(const Tensor& row_T) const;
};

/// Of one matrix: the pairs of each adapter, by its slot.
struct MatrixAdapters {
  std::vector<std::vector<const LowRankPair*>> of_slot;
  const AdapterRows* rows = nullptr;  // of the network

  /// What a GPU knows of all slots (AdapterTables): its tables stay where they are.
  struct Placed {
    Tensor down, up;  // bytes on the device
    int64_t most_ranks = 0, most_chunks = 0, most_splits = 0;
  } placed;
};

/// Pairs of all slots, where rows on a GPU that take several adapters look for them; one of its Device.
class AdapterTables {
 public:
  virtual ~AdapterTables() = default;

  /// Throws ConfigError where it cannot multiply these pairs of one adapter beside one matrix.
  virtual void check_pairs(const std::vector<const LowRankPair*>& pairs) const = 0;

  /// Brings those of all these matrices there, of adapters that were checked. True: some need more room than before,
  /// so that recorded passes have to be recorded again. Passes that run meanwhile read what their slots had, as long
  /// as those stay.
  virtual bool place_pairs(std::span<MatrixAdapters* const> matrices) const = 0;
};

/// A pair's outputs inside a matrix, which may be a range of the pair's own: counted from the beginning of each.
struct PairRange {
  const LowRankPair* pair = nullptr;
  int64_t in_matrix = 0, in_pair = 0, size = 0;

  Tensor of_matrix(const Tensor& y_TO) const { return y_TO.narrow(1, in_matrix, size); }
  Tensor of_b(const Tensor& b_OR) const { return b_OR.narrow(0, in_pair, size); }
};

/// Of the adapter in a slot.
std::vector<PairRange> pair_ranges(const Matrix& matrix, int64_t slot);

/// The same of the only adapter of a pass with gradients.
std::vector<PairRange> trained_ranges(const Matrix& matrix);

/// Whether a product of this matrix has more than the matrix now.
inline bool adds(const MatrixAdapters* adapters) {
  return adapters != nullptr && adapters->rows->is_on;
}

/// The matrix as a product with gradients takes it: with the number of the pass, which says what its dropout
/// keeps.
MatrixParam in_this_pass(const MatrixParam& weight);

// As the functions of kernels::Device of these names.

/// `hidden` not null: becomes what adapted_backward() of this product may take in the place of computing x A^T again.
Tensor adapted_linear(const Tensor& x_TI, const Matrix& weight_OI, const Tensor& bias_O,
                      Tensor* hidden = nullptr);
void adapted_linear_into(const Tensor& y_TO, const Tensor& x_TI, const Matrix& weight_OI,
                         const Tensor& bias_O);
Tensor adapted_gated_linear(const Tensor& x_TI, const Matrix& weight_2FI, const Tensor& bias_2F);
Tensor adapted_logits(const Tensor& x_TI, const Matrix& weight_OI);
Tensor adapted_input_grad(const Tensor& dy_TO, const Matrix& weight_OI);
void adapted_input_grad_into(const Tensor& dx_TI, const Tensor& dy_TO, const Matrix& weight_OI);
/// Adds to the gradients of the matrix and of its pairs; returns dx. `hidden`: of adapted_linear(), or undefined.
Tensor adapted_backward(const MatrixParam& weight_OI, const Tensor& dy_TO, const Tensor& x_TI,
                        const Tensor& hidden = {});
/// Into the gradients of the matrix and of its pairs.
void add_adapted_weight_grad_(const MatrixParam& weight_OI, const Tensor& dy_TO,
                              const Tensor& x_TI);

// Beside products of experts, whose rows lie by expert. `rows`: of x.

void add_grouped_pairs_(const Tensor& y_SO, const Tensor& x_SI, const MatrixAdapters& adapters,
                        const AdapterRows& rows, const GroupStarts& starts);
void add_grouped_pairs_input_grad_(const Tensor& dx_SI, const Tensor& dy_SO,
                                   const MatrixAdapters& adapters, const GroupStarts& starts);
void add_grouped_pairs_grad_(const MatrixAdapters& adapters, const Tensor& dy_SO,
                             const Tensor& x_SI, const GroupStarts& starts);

// Beside an embedding: s B A[:, id] of each row.

void add_embedded_pairs_(const Tensor& y_TH, const Tensor& ids_T, const MatrixAdapters& adapters);
void add_embedded_pairs_grad_(const MatrixAdapters& adapters, const Tensor& dy_TH,
                              const Tensor& ids_T);

}  // namespace slime::kernels
