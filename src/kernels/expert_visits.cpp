#include "kernels/expert_visits.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace slime::kernels {

ExpertVisits group_by_expert(const Tensor& expert_TK, int64_t num_experts) {
  const Tensor experts = expert_TK.contiguous();
  const int64_t visits = experts.numel(), per_token = experts.size(1);
  const auto* expert = experts.const_data_ptr<int64_t>();
  check(std::all_of(expert, expert + visits, [&](int64_t e) { return e >= 0 && e < num_experts; }),
        "a router chooses among the experts that there are");
  ExpertVisits out;
  out.starts.assign(static_cast<size_t>(num_experts) + 1, 0);
  for (int64_t i = 0; i < visits; ++i) ++out.starts[static_cast<size_t>(expert[i]) + 1];
  std::partial_sum(out.starts.begin(), out.starts.end(), out.starts.begin());
  out.token_S = at::empty({visits}, experts.options());
  out.place_TK = at::empty_like(experts);
  auto* token = out.token_S.data_ptr<int64_t>();
  auto* place = out.place_TK.data_ptr<int64_t>();
  std::vector<int64_t> next(out.starts.begin(), out.starts.end() - 1);
  for (int64_t i = 0; i < visits; ++i) {
    place[i] = next[static_cast<size_t>(expert[i])]++;
    token[place[i]] = i / per_token;
  }
  return out;
}

}  // namespace slime::kernels
