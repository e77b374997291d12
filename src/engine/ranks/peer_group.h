#pragma once

/// The group of an engine's ranks on GPUs of one host: small sums go through memory that the ranks write
/// to directly (kernels/gpu/peer_collectives.h), everything else through NCCL.

#include <memory>
#include <string>
#include <vector>

#include "comm/rank_group.h"
#include "comm/socket_mesh.h"
#include "kernels/gpu/peer_collectives.h"
#include "kernels/rank_collectives.h"

namespace slime::engine {

class PeerGroup final : public comm::RankGroup, public kernels::RankCollectives {
 public:
  /// `peers`: of the same ranks.
  PeerGroup(std::unique_ptr<comm::RankGroup> group, comm::Axis axis,
            std::unique_ptr<kernels::PeerCollectives> peers);

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  void all_reduce_(const Tensor& x, const char* what, comm::Reduction reduction) override;
  void reduce_scatter_(const Tensor& x_N, std::span<const comm::Range> shards,
                       const char* what) override {
    group_->reduce_scatter_(x_N, shards, what);
  }
  void all_gather_(const Tensor& x_N, std::span<const comm::Range> shards,
                   const char* what) override {
    group_->all_gather_(x_N, shards, what);
  }
  void broadcast_(const Tensor& x, int root, const char* what) override {
    group_->broadcast_(x, root, what);
  }
  void exchange(std::span<const comm::Message> messages, const char* operation,
                const char* what) override {
    group_->exchange(messages, operation, what);
  }
  void barrier(const char* what) override { group_->barrier(what); }
  std::vector<std::string> all_gather(const std::string& bytes, const char* what) override {
    return group_->all_gather(bytes, what);
  }

  /// Throws comm::GroupError where a kernel has waited in vain, in a step that has ended.
  void check_peers() const;

  void sum_(const Tensor& partial_TH) const override;
  bool has_add_norm(const Tensor& residual_TH) const override {
    return peers_->has_add_norm(residual_TH);
  }
  Tensor add_norm_(const Tensor& residual_TH, const Tensor& partial, const Tensor& bias_H,
                   const Tensor& weight_H, double eps) const override {
    return peers_->add_norm_(residual_TH, partial, bias_H, weight_H, eps);
  }
  bool has_gather_columns(const Tensor& own_RV) const override {
    return peers_->has_gather_columns(own_RV);
  }
  Tensor gather_columns(const Tensor& own_RV, int64_t columns) const override {
    return peers_->gather_columns(own_RV, columns);
  }

 private:
  std::unique_ptr<comm::RankGroup> group_;
  comm::Axis axis_;
  std::unique_ptr<kernels::PeerCollectives> peers_;
};

/// PeerGroup::check_peers() of a group that is one. In a step that was recorded nobody else asks.
void check_peers(const comm::RankGroup& group);

/// For make_nccl_mesh(): its groups with peer memory, or as they are where there is none, and where it
/// is `disabled`. The GPU is open. `deadline`: of a sum's wait.
comm::WrapGroup with_peer_collectives(std::chrono::milliseconds deadline, bool disabled);

}  // namespace slime::engine
