#include "train/pass.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/device.h"
#include "kernels/pick_rows.h"
#include "model/layers/row_shares.h"

namespace slime::train {
namespace {

/// On the network's device, with the rows from elsewhere where the rank has the embedding.
model::TokenBatch tokens_of(model::Network& network, const comm::Mesh& mesh,
                            const MicroBatch& micro_batch) {
  const at::Device device = network.weights().flat().device();
  model::TokenBatch tokens = micro_batch.packed.tokens;
  tokens.ids_T = tokens.ids_T.to(device);
  tokens.rotary_row_T = tokens.rotary_row_T.to(device);
  if (mesh.at().pp == 0) model::put_media(tokens, micro_batch.packed.media, network.media_source());
  return tokens;
}

/// The sum of what ranks have; each computes the same of it, so the gradient is the own part's.
struct SumOfParts : torch::autograd::Function<SumOfParts> {
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& part,
                        comm::RankGroup* ranks) {
    ctx->mark_dirty({part});
    ranks->all_reduce_(part, "numbers of all tokens");
    return part;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list grads) {
    return {grads[0], Tensor()};
  }
};

/// The tokens of some of the scored ids, and where they are in the flat list of all.
struct TokensOfSome {
  kernels::KeptTokens tokens;
  Tensor place;
};

TokensOfSome of_some(const kernels::KeptTokens& all, const Tensor& id) {
  const Tensor begin = all.offsets.index_select(0, id);
  const Tensor counts = all.offsets.index_select(0, id + 1) - begin;
  const Tensor offsets = at::constant_pad_nd(counts.cumsum(0), {1, 0});
  const Tensor first = at::repeat_interleave(begin - offsets.narrow(0, 0, id.size(0)), counts);
  const Tensor place = first + at::arange(first.size(0), at::kLong);
  return {{all.ids.index_select(0, place), offsets}, place};
}

}  // namespace

Pass::Pass(model::Network& network, const comm::Mesh& mesh, const MicroBatch& micro_batch,
           RoutingOfPass* routing)
    : network_(network),
      micro_batch_(micro_batch),
      device_(network.weights().flat().device()),
      rows_(tokens_of(network, mesh, micro_batch), mesh),
      attention_(rows_) {
  if (micro_batch.attends_in_pages) attention_.attend_in_pages();
  if (micro_batch.orders_backward) attention_.order_backward();
  if (routing != nullptr) ask_routers(mesh, *routing);
}

void Pass::ask_routers(const comm::Mesh& mesh, RoutingOfPass& routing) {
  const model::ModelConfig& config = network_.config();
  const PackedBatch& packed = micro_batch_.packed;
  // Tensor-parallel ranks have the same rows, and each routes its share of them.
  const model::RowShares shares = model::equal_rows(rows_.own.num_tokens(), mesh.tp());
  const int64_t layers = config.num_layers, own = shares.own(), begin = shares.begin(),
                all = packed.tokens.num_tokens();
  const Tensor own_L = rows_.own_L.narrow(0, begin, own);
  const auto floats = at::TensorOptions(kernels::accumulator_of(network_.weights().flat()));
  if (routing.replays && micro_batch_.visited_YLK.defined()) {
    routers_.given_YTK = micro_batch_.visited_YLK;
  } else if (routing.replays && packed.experts_UW.defined()) {
    routers_.given_YTK = packed.experts_UW.index_select(0, own_L)
                             .view({own, layers, config.experts.per_token})
                             .transpose(0, 1)
                             .contiguous()
                             .to(device_);
  }
  routing.made_YLK = at::full({layers, own, config.experts.per_token}, -1,
                              at::TensorOptions(at::kShort).device(device_));
  routing.terms_Y2 = at::zeros({layers, 2}, at::TensorOptions(at::kDouble).device(device_));
  routers_.num_rows = own;
  routers_.made_YTK = routing.made_YLK;
  routers_.terms_Y2 = routing.terms_Y2;
  routers_.losses = routing.losses;
  routers_.gradient_scale = routing.gradient_scale;
  routing.count_L =
      at::bincount(packed.row_L, {}, all).index_select(0, own_L).to(floats).to(device_);
  routers_.rows.count_T = routing.count_L;
  routers_.rows.ranks = {&mesh.tp(), &mesh.cp()};
  const Tensor lengths_Q = at::tensor(packed.lengths, at::kLong);
  routers_.rows.length_Q = lengths_Q.to(floats).to(device_);
  if (routing.losses.balance == model::RouterLosses::Balance::kSequence) {
    const Tensor sequence_P = at::repeat_interleave(lengths_Q);
    const Tensor place_P = rows_.place_T.index_select(0, packed.row_L) - begin;
    const Tensor own_P = ((place_P >= 0) & (place_P < own)).nonzero().squeeze(1);
    routers_.rows.sequence_P = sequence_P.index_select(0, own_P).to(device_);
    routers_.rows.row_P = place_P.index_select(0, own_P).to(device_);
  }
  rows_.own.routers = &routers_;
}

kernels::Arithmetic Pass::arithmetic() const {
  return micro_batch_.attends_in_pages ? kernels::Arithmetic::kTraining
                                       : kernels::Arithmetic::kFast;
}

Tensor Pass::forward(int chunk, const Tensor& stream_LH) {
  const kernels::ArithmeticScope scope(kernels::kernels_for(network_.weights().flat()),
                                       arithmetic());
  return network_.forward_chunk(chunk, stream_LH, rows_.own, attention_);
}

Pass::Scored Pass::own_of(const Tensor& row_of_id) const {
  const Tensor place = rows_.place_T.index_select(0, row_of_id);
  if (rows_.ranks.is_alone()) return {{}, place, place.size(0)};
  const Tensor id = (place >= 0).nonzero().squeeze(1);
  return {id, place.index_select(0, id), row_of_id.size(0)};
}

Tensor Pass::of_all_ranks(const Tensor& x, const Scored& scored) const {
  return of_all_ranks(x, scored.id, scored.size);
}

Tensor Pass::of_all_ranks(const Tensor& x, const Tensor& place, int64_t size) const {
  if (rows_.ranks.is_alone()) return x.cpu();
  const Tensor part = at::zeros({size}, x.options()).index_put({place.to(x.device())}, x);
  return SumOfParts::apply(part, &rows_.ranks).cpu();
}

kernels::LogProbs Pass::log_probs(const Tensor& hidden_LH,
                                  const kernels::LinearLogProbOptions& options,
                                  bool lists_centered) const {
  const kernels::ArithmeticScope scope(kernels::kernels_for(network_.weights().flat()),
                                       arithmetic());
  const PackedBatch& packed = micro_batch_.packed;
  const kernels::KeptTokens &kept = micro_batch_.kept, &centered = micro_batch_.centered;
  const bool replays = kept.ids.defined(), lists = lists_centered && centered.ids.defined();
  // Each sequence has a nucleus of its own, so tokens that sequences share are scored for each.
  const bool is_per_token = replays || lists;
  const auto of_scored = [&](const Tensor& x_S) {
    return is_per_token ? x_S.index_select(0, packed.scored_T) : x_S;
  };
  const Scored scored = own_of(of_scored(packed.row_S));
  Tensor target = of_scored(packed.target_S);
  if (scored.id.defined()) target = target.index_select(0, scored.id);
  kernels::LinearLogProbOptions own = options;
  if (replays) own.kept_tokens = scored.id.defined() ? of_some(kept, scored.id).tokens : kept;
  Tensor listed_place;
  if (lists && scored.id.defined()) {
    const TokensOfSome listed = of_some(centered, scored.id);
    own.listed_tokens = listed.tokens;
    listed_place = listed.place;
  } else if (lists) {
    own.listed_tokens = centered;
  }
  const kernels::LogProbs scores = network_.log_probs(
      kernels::pick_rows(hidden_LH, scored.row.to(device_)), target.to(device_), own);
  const auto of_tokens = [&](const Tensor& x) {
    const Tensor all = of_all_ranks(x, scored);
    return is_per_token ? all : all.index_select(0, packed.scored_T);
  };
  return {of_tokens(scores.logprob_R), of_tokens(scores.entropy_R),
          lists ? of_all_ranks(scores.listed_A, listed_place, centered.ids.size(0)) : Tensor()};
}

Tensor Pass::values(const Tensor& hidden_LH, const model::ValueHead& head) const {
  const Scored scored = own_of(micro_batch_.packed.row_S);
  const Tensor value = head.forward(kernels::pick_rows(hidden_LH, scored.row.to(device_)));
  return of_all_ranks(value, scored).index_select(0, micro_batch_.packed.scored_T);
}

}  // namespace slime::train
