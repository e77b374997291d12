#pragma once

/// Tensor-parallel communication around each pair of products: the first sliced by outputs (heads,
/// feed-forward width), the second by inputs (Megatron's f and g).
///
///   x -> layer_input -> product by slices of the outputs -> ... each its own
///     -> product by slices of the inputs -> layer_output -> y
///
/// x and y, which belong to the residual stream, are either the same on all ranks: then the backward
/// of layer_input and the forward of layer_output are all-reduces. Or (sequence parallel) each rank
/// has its rows of them: layer_input gathers rows and reduce-scatters their gradient, layer_output
/// does the opposite, and what is between the layers is computed once.
///
/// Rows are dealt in equal shares; the last of them are padding where their number does not divide.
/// Padding is not zero after a layer, but nothing that counts reads it, so its gradient is zero.
///
/// With one rank all of this is the identity and costs nothing.
///
/// Dimensions: T rows, L = ceil(T / ranks) rows of a rank with sequence parallelism, else L = T.

#include <memory>

#include "comm/mesh.h"
#include "comm/side_stream.h"
#include "core/tensor.h"
#include "kernels/rank_collectives.h"
#include "model/layers/products.h"

namespace slime::model {

struct TensorParallel {
  explicit TensorParallel(const comm::Mesh& mesh)
      : ranks(mesh.tp()),
        messages(mesh.layer_messages()),
        cuts_rows(mesh.sizes().sequence_parallel && !ranks.is_alone()) {}

  bool is_alone() const { return ranks.is_alone(); }

  comm::RankGroup& ranks;
  comm::SideStream& messages;  // of these layers, beside their products
  bool cuts_rows;              // sequence parallel
};

/// [at least T, H] from the stream's [L, H]: the same on all ranks. Its gradient is the sum of what
/// they have of it.
Tensor layer_input(const Tensor& x_LH, const TensorParallel& tp);

/// The stream's [L, H] from [T, H] of which each rank has a part of the sum; `partial_TH` may be
/// overwritten. The ranks bring the same gradient, or that of their rows.
Tensor layer_output(const Tensor& partial_TH, const TensorParallel& tp);

/// A product whose outputs are sliced over the ranks, of layer_input(x_LH): the first `num_rows` rows.
/// Messages run beside products (parallel_products.cpp).
Tensor gathered_linear(const Tensor& x_LH, int64_t num_rows, const Product& product,
                       const TensorParallel& tp);

/// A product whose inputs are sliced over the ranks: a part of the sum. One rank adds the bias.
Tensor partial_linear(const Tensor& x_TI, const Product& product, const TensorParallel& tp);

/// The same, summed as layer_output() does. Messages run beside products, too.
Tensor summed_linear(const Tensor& x_TI, const Product& product, const TensorParallel& tp);

/// Rows of all ranks where each has x's.
inline int64_t rows_of_all(const Tensor& x_LH, const TensorParallel& tp) {
  return tp.cuts_rows ? x_LH.size(0) * tp.ranks.size() : x_LH.size(0);
}

/// The sum of layer_output() without gradients, for kernels that go over it (kernels/rank_collectives.h); null
/// for one rank. The ranks outlive it.
std::unique_ptr<kernels::RankCollectives> rank_collectives_of(const TensorParallel& tp);

/// [T, H] of the stream's [L, H]: the same on all ranks, which bring the same gradient for it.
Tensor all_rows(const Tensor& x_LH, int64_t num_rows, const TensorParallel& tp);

/// x itself; in the backward its gradient is the sum of what the ranks have of it.
Tensor sum_gradient(const Tensor& x, const TensorParallel& tp);

/// The first `num_rows` rows: without those that are padding.
Tensor first_rows(const Tensor& x, int64_t num_rows);

}  // namespace slime::model
