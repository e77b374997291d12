#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/cuda/attention/exact_arrays.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/gpu/exact_units.h"
#include "kernels/gpu/paged_units.h"

namespace slime::kernels::cuda {

/// What the segments of a batch see, on the device.
struct CudaDevice::ExactBatch {
  std::vector<Segment> segments;
  int64_t tile = 0, group = 0;
  Tensor numbers;  // int32: of which the others are views
  ExactLaunch launch;
  Tensor rows;  // int32: the tables
};

namespace {

bool is_same_segment(const Segment& a, const Segment& b) {
  return a.begin == b.begin && a.end == b.end && a.parent == b.parent &&
         a.has_queries == b.has_queries;
}

}  // namespace

const CudaDevice::ExactBatch& CudaDevice::exact_batch(const Tensor& heads_TE,
                                                      const std::vector<Segment>& segments,
                                                      const RotaryShape& heads) const {
  const int64_t group = heads.num_heads / heads.num_kv_heads,
                tile = exact_tile(most_tile_rows(heads.head_dim), group);
  if (exact_ != nullptr && exact_->tile == tile && exact_->group == group &&
      std::ranges::equal(exact_->segments, segments, is_same_segment))
    return *exact_;
  const ExactTree tree = exact_tree(segments);
  const ExactPlan plan =
      plan_exact(tree.sequences, static_cast<int64_t>(tree.rows.size()), group, tile);
  // One copy for all lists.
  std::vector<int32_t> all(tree.rows);
  std::vector<std::pair<int64_t, int64_t>> places;
  exact_launch(plan, [&](const std::vector<int32_t>& list) {
    places.emplace_back(static_cast<int64_t>(all.size()), static_cast<int64_t>(list.size()));
    all.insert(all.end(), list.begin(), list.end());
    return Tensor();
  });
  auto batch = std::make_shared<ExactBatch>();
  batch->segments = segments;
  batch->tile = tile;
  batch->group = group;
  batch->numbers = at::tensor(all, at::kInt).to(heads_TE.device());
  batch->rows = batch->numbers.narrow(0, 0, static_cast<int64_t>(tree.rows.size()));
  auto place = places.begin();
  batch->launch = exact_launch(plan, [&](const std::vector<int32_t>&) {
    const auto [begin, size] = *place++;
    return batch->numbers.narrow(0, begin, size);
  });
  exact_ = std::move(batch);
  return *exact_;
}

Tensor CudaDevice::tree_attention_in_pages(const Tensor& heads_TE,
                                           const std::vector<Segment>& segments,
                                           const RotaryShape& heads,
                                           const TreeAttentionShape& shape, const Tensor& sinks_N,
                                           Tensor& logsumexp_TN) const {
  check(has_number(heads_TE) && heads_TE.is_contiguous() && is_aligned(heads_TE) &&
            has_exact(number_of(heads_TE), static_cast<int>(heads.head_dim)) && shape.window == 0,
        "--true-on-policy was refused where there is no attention in training arithmetic");
  const std::lock_guard lock(attention_mutex_);
  const ExactBatch& batch = exact_batch(heads_TE, segments, heads);
  const int64_t rows = heads_TE.size(0), size = heads_TE.element_size();
  const auto statistics = heads_TE.options().dtype(at::kFloat);
  // Rows without queries stay as they are: their reader clears them.
  Tensor y_TC = at::empty({rows, heads.num_heads * heads.head_dim}, heads_TE.options());
  logsumexp_TN = at::empty({rows, heads.num_heads}, statistics);
  if (batch.launch.num_units == 0) return y_TC;
  AttendCall call;
  call.number = number_of(heads_TE);
  call.q = heads_TE.data_ptr();
  call.row_stride = heads_TE.size(1);
  call.out_TC = y_TC.data_ptr();
  call.rows = rows;
  call.num_heads = static_cast<int>(heads.num_heads);
  call.num_kv_heads = static_cast<int>(heads.num_kv_heads);
  call.head_dim = static_cast<int>(heads.head_dim);
  call.scale = static_cast<float>(shape.scale);
  call.cap = static_cast<float>(shape.cap);
  const auto* first = static_cast<const std::byte*>(heads_TE.const_data_ptr());
  call.paged.keys = first + heads.num_heads * heads.head_dim * size;
  call.paged.values = first + (heads.num_heads + heads.num_kv_heads) * heads.head_dim * size;
  ExactArrays plan = exact_arrays(batch.launch, batch.rows);
  plan.entry_tokens = 1;
  plan.entry_stride = plan.token_stride = heads_TE.size(1);
  plan.head_stride = heads.head_dim;
  const cudaStream_t stream = stream_of(heads_TE);
  auto* to_base_2 = logsumexp_TN.data_ptr<float>();
  attend_exact(call, plan, to_base_2, stream);
  if (sinks_N.defined()) {
    const Tensor sinks = sinks_N.to(heads_TE.scalar_type());
    call.sinks_N = pointer(sinks);
    apply_sinks(call, to_base_2, /*is_base_2=*/true, stream);
  }
  constexpr double kLn2 = 0.693147180559945309;
  logsumexp_TN.mul_(kLn2);
  if (sinks_N.defined()) logsumexp_TN = at::logaddexp(logsumexp_TN, sinks_N.to(at::kFloat));
  return y_TC;
}

}  // namespace slime::kernels::cuda
