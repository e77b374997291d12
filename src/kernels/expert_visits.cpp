#include "kernels/expert_visits.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "core/error.h"

namespace slime::kernels {
namespace {

/// By a sort, on whatever device the numbers are.
ExpertVisits grouped_on_device(const Tensor& expert_TK, int64_t num_experts) {
  const auto options = expert_TK.options();
  const int64_t visits = expert_TK.numel();
  const auto [sorted_S, visit_S] = expert_TK.reshape({visits}).sort(/*stable=*/true, 0, false);
  ExpertVisits out;
  out.starts = GroupStarts(
      at::searchsorted(sorted_S, at::arange(num_experts + 1, options), /*out_int32=*/true));
  out.token_S = visit_S.div(expert_TK.size(1), "floor");
  out.place_TK = at::empty({visits}, options)
                     .scatter_(0, visit_S, at::arange(visits, options))
                     .view(expert_TK.sizes());
  return out;
}

}  // namespace

ExpertVisits group_by_expert(const Tensor& expert_TK, int64_t num_experts) {
  if (!expert_TK.is_cpu()) return grouped_on_device(expert_TK, num_experts);
  const Tensor experts = expert_TK.contiguous();
  const int64_t visits = experts.numel(), per_token = experts.size(1);
  const auto* expert = experts.const_data_ptr<int64_t>();
  check(std::all_of(expert, expert + visits, [&](int64_t e) { return e >= 0 && e < num_experts; }),
        "a router chooses among the experts that there are");
  ExpertVisits out;
  std::vector<int64_t> starts(static_cast<size_t>(num_experts) + 1, 0);
  for (int64_t i = 0; i < visits; ++i) ++starts[static_cast<size_t>(expert[i]) + 1];
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  out.token_S = at::empty({visits}, experts.options());
  out.place_TK = at::empty_like(experts);
  auto* token = out.token_S.data_ptr<int64_t>();
  auto* place = out.place_TK.data_ptr<int64_t>();
  std::vector<int64_t> next(starts.begin(), starts.end() - 1);
  for (int64_t i = 0; i < visits; ++i) {
    place[i] = next[static_cast<size_t>(expert[i])]++;
    token[place[i]] = i / per_token;
  }
  out.starts = std::move(starts);
  return out;
}

}  // namespace slime::kernels
