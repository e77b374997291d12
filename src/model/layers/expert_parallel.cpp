#include "model/layers/expert_parallel.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>
#include <vector>

#include "core/error.h"
#include "kernels/device.h"
#include "kernels/trace.h"
#include "model/layers/row_shares.h"

namespace slime::model {
namespace {

using kernels::GroupStarts;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

int64_t share_of(int64_t size, int ranks, const char* axis, const char* what) {
  if (size % ranks == 0) return size / ranks;
  throw ConfigError(
      fmt::format("{} parallelism of {} does not divide {} {}", axis, ranks, what, size));
}

/// How rows of visits travel to the ranks of their experts.
class Journey {
 public:
  /// `starts`: of this rank's rows, which lie by expert, among all experts.
  Journey(const GroupStarts& starts, const ExpertParallel& where) : ranks_(&where.ep) {
    const int64_t size = where.ep.size(), experts = where.num_experts, local = where.count;
    const Tensor starts_E1 =
        starts.is_on_device() ? starts.device_E1.to(at::kLong) : at::tensor(starts.host, at::kLong);
    const Tensor counts_RE = at::empty({size, experts}, starts_E1.options());
    counts_RE[ranks_->rank()].copy_(starts_E1.diff());
    std::vector<comm::Range> shards;
    for (int64_t r = 0; r < size; ++r) shards.push_back({r * experts, (r + 1) * experts});
    ranks_->all_gather_(counts_RE.view({-1}), shards, "how many rows visit which experts");
    const Tensor host = counts_RE.cpu();  // sync: lengths of what travels next
    const auto* count = host.const_data_ptr<int64_t>();
    const auto of = [&](int64_t rank, int64_t expert) { return count[rank * experts + expert]; };
    for (int64_t r = 0; r < size; ++r) {
      int64_t sent = 0, received = 0;
      for (int64_t e = 0; e < local; ++e) {
        sent += of(ranks_->rank(), r * local + e);
        received += of(r, where.first + e);
      }
      sent_.push_back(sent);
      received_.push_back(received);
    }
    sort(of, where);
  }

  /// From AutogradContext.
  Journey(comm::RankGroup* ranks, std::vector<int64_t> sent, std::vector<int64_t> received,
          Tensor order_R)
      : ranks_(ranks),
        sent_(std::move(sent)),
        received_(std::move(received)),
        order_R_(std::move(order_R)) {}

  const std::vector<int64_t>& sent() const { return sent_; }
  const std::vector<int64_t>& received() const { return received_; }
  const Tensor& order() const { return order_R_; }
  /// Of the rows that arrived, by this rank's experts.
  const std::vector<int64_t>& starts() const { return starts_; }

  /// Rows by expert, of all ranks.
  Tensor there(const Tensor& x_S, const char* what) const {
    const Tensor arrived = comm::all_to_all(*ranks_, x_S.contiguous(), sent_, received_, what);
    return arrived.index_select(0, order_R_.to(x_S.device()));
  }
  /// The opposite.
  Tensor back(const Tensor& x_R, const char* what) const {
    const Tensor as_they_came = at::empty_like(x_R).index_copy_(0, order_R_.to(x_R.device()), x_R);
    return comm::all_to_all(*ranks_, as_they_came, received_, sent_, what);
  }

 private:
  /// Rows arrive by rank and, of each, by expert; products want them by expert.
  template <typename CountOf>
  void sort(const CountOf& count_of, const ExpertParallel& where) {
    std::vector<int64_t> next;  // where the next rows of each rank are among those that arrive
    int64_t total = 0;
    for (const int64_t received : received_) {
      next.push_back(total);
      total += received;
    }
    order_R_ = at::empty({total}, at::kLong);
    auto* order = order_R_.mutable_data_ptr<int64_t>();
    int64_t place = 0;
    starts_.assign(1, 0);
    for (int64_t e = 0; e < where.count; ++e) {
      for (int64_t r = 0; r < ranks_->size(); ++r) {
        const int64_t count = count_of(r, where.first + e);
        std::iota(order + place, order + place + count, next[static_cast<size_t>(r)]);
        next[static_cast<size_t>(r)] += count;
        place += count;
      }
      starts_.push_back(place);
    }
  }

  comm::RankGroup* ranks_;
  std::vector<int64_t> sent_, received_;  // rows for and from each rank
  Tensor order_R_;                        // int64, on the host
  std::vector<int64_t> starts_;
};

GroupStarts starts_on(const std::vector<int64_t>& starts, const at::Device& device) {
  if (device.is_cpu()) return starts;
  return GroupStarts(at::tensor(starts, at::kInt).to(device));
}

/// Products of the rows that arrived; nobody may have come.
kernels::ExpertRows products(const Tensor& x_RH, const GroupStarts& starts,
                             const kernels::ExpertStack& stack) {
  if (x_RH.size(0) > 0) return kernels::expert_rows(x_RH, starts, stack);
  return {at::empty_like(x_RH), at::empty({0}, x_RH.options())};
}

struct TravellingRows : torch::autograd::Function<TravellingRows> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x_TH, const Tensor& weight_TK,
                        const kernels::ExpertVisits& visits, const kernels::ExpertStack& stack,
                        const ExpertParallel& where) {
    const Journey journey(visits.starts, where);
    const Tensor x_RH =
        journey.there(x_TH.index_select(0, visits.token_S), "rows to their experts");
    const kernels::ExpertRows rows =
        products(x_RH, starts_on(journey.starts(), x_TH.device()), stack);
    const Tensor out_SH = journey.back(rows.out_SH, "rows from their experts");
    ctx->save_for_backward({x_RH, rows.gate_up_S2F, weight_TK});
    ctx->saved_data["ranks"] = reinterpret_cast<int64_t>(&where.ep);
    ctx->saved_data["sent"] = journey.sent();
    ctx->saved_data["received"] = journey.received();
    ctx->saved_data["order"] = journey.order();
    ctx->saved_data["starts"] = journey.starts();
    ctx->saved_data["token"] = visits.token_S;
    ctx->saved_data["place"] = visits.place_TK;
    ctx->saved_data["stack"] = reinterpret_cast<int64_t>(&stack);
    return kernels::sum_of_visits(out_SH, visits.place_TK, weight_TK);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &x_RH = saved[0], &gate_up_R2F = saved[1], &weight_TK = saved[2];
    const auto* stack =
        reinterpret_cast<const kernels::ExpertStack*>(ctx->saved_data["stack"].toInt());
    const Journey journey(reinterpret_cast<comm::RankGroup*>(ctx->saved_data["ranks"].toInt()),
                          ctx->saved_data["sent"].toIntVector(),
                          ctx->saved_data["received"].toIntVector(),
                          ctx->saved_data["order"].toTensor());
    const Tensor token_S = ctx->saved_data["token"].toTensor();
    const Tensor place_TK = ctx->saved_data["place"].toTensor();
    const Tensor dout_RH = journey.there(grads[0].contiguous().index_select(0, token_S),
                                         "gradients of rows to their experts");
    const Tensor weight_R = journey.there(kernels::weight_of_visits(weight_TK, place_TK),
                                          "weights of rows to their experts");
    kernels::ExpertRowGradients own{at::empty_like(x_RH), at::empty_like(weight_R)};
    if (x_RH.size(0) > 0) {
      own = kernels::expert_rows_backward(
          dout_RH, [&] { return x_RH; }, gate_up_R2F, weight_R,
          starts_on(ctx->saved_data["starts"].toIntVector(), x_RH.device()), *stack);
    }
    const Tensor dx_SH = journey.back(own.dx_SH, "gradients of rows from their experts");
    const Tensor dweight_S = journey.back(own.dweight_S, "gradients of weights of rows");
    return {kernels::sum_of_visits(dx_SH, place_TK, {}),
            dweight_S.index_select(0, place_TK.view({-1})).view(weight_TK.sizes()), Tensor(),
            Tensor(), Tensor()};
  }
};

}  // namespace

ExpertParallel::ExpertParallel(const comm::Mesh& mesh, int64_t all_experts, int64_t width)
    : tp(mesh.tp()), ep(mesh.ep()), etp(mesh.etp()), num_experts(all_experts) {
  count = share_of(all_experts, ep.size(), "expert", "the experts of a layer, which are");
  first = count * mesh.at().ep;
  const int64_t slice =
      share_of(width, etp.size(), "expert tensor", "the width of an expert, which is");
  width_begin = slice * mesh.at().etp;
  width_end = width_begin + slice;
}

comm::Range ExpertParallel::share_of_outputs(int64_t outputs) const {
  const int64_t share =
      share_of(outputs, etp.size(), "expert tensor", "the outputs of an expert, which are");
  return {share * etp.rank(), share * (etp.rank() + 1)};
}

Tensor distributed_experts(const Tensor& x_LH, const Tensor& expert_LK, const Tensor& weight_LK,
                           const kernels::ExpertStack& stack, const ExpertParallel& where) {
  const kernels::TraceRange range("experts of several ranks");
  const RowShares shares = told_rows(x_LH.size(0), where.etp);
  const Tensor x_TH = gathered_rows(x_LH.contiguous(), shares);
  const Tensor weight_TK = gathered_rows(weight_LK.contiguous(), shares);
  Tensor expert_TK;
  {
    const at::NoGradGuard no_grad;
    expert_TK = joined_rows(expert_LK.contiguous(), shares);
  }
  const kernels::ExpertVisits visits = kernels::group_by_expert(expert_TK, where.num_experts);
  const Tensor y_TH = where.ep.is_alone()
                          ? kernels::experts(x_TH, visits, weight_TK, stack)
                          : TravellingRows::apply(x_TH, weight_TK, visits, stack, where);
  return summed_rows(y_TH, shares);
}

}  // namespace slime::model
