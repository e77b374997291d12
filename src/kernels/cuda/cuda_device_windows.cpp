#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/cuda/attention/packed_attention.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/gpu/windowed_rows.h"

namespace slime::kernels::cuda {

/// kernels/gpu/windowed_rows.h on the device.
struct CudaDevice::WindowedBatch {
  std::vector<Segment> segments;
  int64_t window = 0;
  AttentionLevel level;
  Tensor row_G, place_T, copy_P;  // int64
  Tensor copied_P;                // int64: the rows that copies are of
};

namespace {

Tensor index_on(const Tensor& like, const std::vector<int64_t>& numbers) {
  return at::tensor(numbers, at::kLong).to(like.device());
}

bool is_same(const Segment& a, const Segment& b) {
  return a.begin == b.begin && a.end == b.end && a.parent == b.parent &&
         a.has_queries == b.has_queries;
}

}  // namespace

const CudaDevice::WindowedBatch* CudaDevice::windowed_batch(const Tensor& heads_TE,
                                                            const std::vector<Segment>& segments,
                                                            int64_t window) const {
  if (windowed_ != nullptr && windowed_->window == window &&
      std::ranges::equal(windowed_->segments, segments, is_same))
    return windowed_.get();
  std::optional<WindowedRows> rows = windowed_rows(segments, window);
  if (!rows) return nullptr;
  const Tensor row_G = index_on(heads_TE, rows->row_G), copy_P = index_on(heads_TE, rows->copy_P);
  windowed_ = std::make_shared<const WindowedBatch>(
      WindowedBatch{segments, window, std::move(rows->level), row_G,
                    index_on(heads_TE, rows->place_T), copy_P, row_G.index_select(0, copy_P)});
  return windowed_.get();
}

Tensor CudaDevice::windowed_attention(const Tensor& heads_TE, const WindowedBatch& batch,
                                      const RotaryShape& heads, const TreeAttentionShape& shape,
                                      Tensor& logsumexp_TN) const {
  const int64_t places = batch.row_G.size(0);
  const Tensor heads_GE = heads_TE.index_select(0, batch.row_G);
  const Tensor y_GC = at::empty({places, heads.num_heads * heads.head_dim}, heads_TE.options());
  const Tensor logsumexp_GN =
      at::empty({places, heads.num_heads}, heads_TE.options().dtype(at::kFloat));
  attention_->forward(heads_GE, {}, batch.level, heads, shape, y_GC, logsumexp_GN);
  logsumexp_TN = logsumexp_GN.index_select(0, batch.place_T);
  return y_GC.index_select(0, batch.place_T);
}

Tensor CudaDevice::windowed_attention_backward(const Tensor& dy_TC, const Tensor& y_TC,
                                               const Tensor& heads_TE, const Tensor& logsumexp_TN,
                                               const WindowedBatch& batch, const RotaryShape& heads,
                                               const TreeAttentionShape& shape) const {
  const auto spread = [&](const Tensor& x, double of_copies) {
    return at::full({batch.row_G.size(0), x.size(1)}, of_copies, x.options())
        .index_copy_(0, batch.place_T, x);
  };
  // Copies are asked nothing: exp(score - this) is zero.
  constexpr double kNoWeight = 1e30;
  const Tensor heads_GE = heads_TE.index_select(0, batch.row_G);
  const Tensor dheads_GE = at::empty_like(heads_GE);
  attention_->backward(spread(dy_TC, 0), spread(y_TC, 0), heads_GE, spread(logsumexp_TN, kNoWeight),
                       batch.level, heads, shape, dheads_GE);
  Tensor dheads_TE = dheads_GE.index_select(0, batch.place_T);
  const int64_t queries = heads.num_heads * heads.head_dim, keys = heads_TE.size(1) - queries;
  const Tensor dkeys_TX = dheads_TE.narrow(1, queries, keys);
  const Tensor sum_TX = dkeys_TX.to(at::kFloat).contiguous();
  const Tensor of_copies_PX =
      dheads_GE.index_select(0, batch.copy_P).narrow(1, queries, keys).contiguous();
  add_rows_(sum_TX, batch.copied_P, of_copies_PX);
  dkeys_TX.copy_(sum_TX);
  return dheads_TE;
}

}  // namespace slime::kernels::cuda
