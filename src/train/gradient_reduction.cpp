#include "train/gradient_reduction.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>

#include "train/shards.h"

namespace slime::train {
namespace {

constexpr const char* kWhat = "summing the gradients";

}  // namespace

GradientReduction::GradientReduction(model::Weights& weights, const comm::Mesh& mesh)
    : weights_(weights), mesh_(mesh), buckets_{{0, weights.experts_begin()}} {
  for (const ShardedPart& part : sharded_parts(weights)) {
    comm::RankGroup& ranks = mesh.group(part.axis);
    parts_.push_back({part.elements, ranks, shards_of(part, ranks.size())});
  }
}

void GradientReduction::set_marks(const std::vector<int64_t>& marks, int64_t bucket_elements) {
  // What ranks share is summed before, over all of the buffer. Over context-parallel ranks alone the
  // layers gather keys and values through the same connection, and would wait for buckets; so would
  // rows that travel to their experts.
  if (mesh_.dp().is_alone() || !mesh_.tp().is_alone() || !mesh_.pp().is_alone() ||
      !mesh_.ep().is_alone() || !mesh_.etp().is_alone())
    return;
  buckets_.clear();
  int64_t end = weights_.num_elements();
  for (const int64_t mark : marks) {
    if (mark <= 0 || end - mark < bucket_elements) continue;
    buckets_.push_back({mark, end});
    end = mark;
  }
  buckets_.push_back({0, end});
}

void GradientReduction::complete_from(int64_t begin) {
  if (!is_last_ || buckets_.size() == 1) return;
  reduce_from(begin);
}

void GradientReduction::reduce_from(int64_t begin) {
  for (; next_ < buckets_.size() && buckets_[next_].begin >= begin; ++next_)
    reduce(buckets_[next_]);
}

void GradientReduction::reduce(const comm::Range& bucket) {
  const Tensor grad = weights_.grad().narrow(0, bucket.begin, bucket.size());
  std::vector<comm::Range> shards;  // of the bucket
  for (const comm::Range& shard : parts_.front().shards) {
    const int64_t begin = std::clamp(shard.begin, bucket.begin, bucket.end) - bucket.begin;
    const int64_t end = std::clamp(shard.end, bucket.begin, bucket.end) - bucket.begin;
    shards.push_back({begin, end});
  }
  const auto reduce = [&] { parts_.front().ranks.reduce_scatter_(grad, shards, kWhat); };
  buckets_.size() == 1 ? reduce() : side_.run(grad, reduce);
}

void GradientReduction::finish() {
  sum_partial();
  sum_over_stages();
  reduce_from(0);
  reduce_experts();
  side_.join();
  next_ = 0;
  is_last_ = false;
}

void GradientReduction::reduce_experts() {
  for (const Part& part : std::span(parts_).subspan(1)) {
    std::vector<comm::Range> shards = part.shards;
    for (comm::Range& shard : shards) {
      shard.begin -= part.elements.begin;
      shard.end -= part.elements.begin;
    }
    part.ranks.reduce_scatter_(weights_.grad().narrow(0, part.elements.begin, part.elements.size()),
                               shards, "summing the gradients of experts");
  }
}

void GradientReduction::sum_partial() {
  if (mesh_.tp().is_alone()) return;
  std::vector<Tensor> partial;
  for (const model::NamedWeight& weight : weights_.tensors()) {
    if (weight.has_partial_grad)
      partial.push_back(model::Weights::view(weights_.grad(), weight).view({-1}));
  }
  if (partial.empty()) return;
  const Tensor all = at::cat(partial);
  mesh_.tp().all_reduce_(all, "summing the gradients of weights that ranks share");
  int64_t begin = 0;
  for (const Tensor& grad : partial) {
    grad.copy_(all.narrow(0, begin, grad.numel()));
    begin += grad.numel();
  }
}

void GradientReduction::sum_over_stages() {
  if (mesh_.pp().is_alone()) return;
  const int peer = mesh_.at().pp == 0 ? mesh_.sizes().pp - 1 : 0;
  for (const model::NamedWeight& weight : weights_.tensors()) {
    if (!weight.is_on_two_stages) continue;
    const Tensor grad = model::Weights::view(weights_.grad(), weight);
    const Tensor theirs = at::empty_like(grad);
    const comm::Message messages[] = {{comm::Message::Direction::kSend, peer, grad},
                                      {comm::Message::Direction::kReceive, peer, theirs}};
    mesh_.pp().exchange(messages, "exchange", "the gradient of a weight that two stages share");
    grad.add_(theirs);  // the same bits on both: a sum of two has no order
  }
}

}  // namespace slime::train
