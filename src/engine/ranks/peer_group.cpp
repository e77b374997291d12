#include "engine/ranks/peer_group.h"

#include <fmt/format.h>

#include <cstdio>
#include <stdexcept>
#include <utility>

namespace slime::engine {

PeerGroup::PeerGroup(std::unique_ptr<comm::RankGroup> group, comm::Axis axis,
                     std::unique_ptr<kernels::PeerCollectives> peers)
    : group_(std::move(group)), axis_(axis), peers_(std::move(peers)) {}

void PeerGroup::all_reduce_(const Tensor& x, const char* what, comm::Reduction reduction) {
  if (reduction != comm::Reduction::kSum || !peers_->takes(x))
    return group_->all_reduce_(x, what, reduction);
  check_peers();
  peers_->sum_(x);
}

void PeerGroup::sum_(const Tensor& partial_TH) const {
  if (peers_->takes(partial_TH)) return peers_->sum_(partial_TH);
  group_->all_reduce_(partial_TH, "a tensor-parallel layer", comm::Reduction::kSum);
}

void PeerGroup::check_peers() const {
  const std::string problem = peers_->problem();
  if (problem.empty()) return;
  throw comm::GroupError(
      fmt::format("a sum over {} ({} of {}): {}", comm::name_of(axis_), rank(), size(), problem));
}

void check_peers(const comm::RankGroup& group) {
  if (const auto* peers = dynamic_cast<const PeerGroup*>(&group)) peers->check_peers();
}

comm::WrapGroup with_peer_collectives(std::chrono::milliseconds deadline, bool disabled) {
  return [deadline, disabled](std::unique_ptr<comm::RankGroup> group,
                              comm::Axis axis) -> std::unique_ptr<comm::RankGroup> {
    if (disabled) return group;
    constexpr const char* kWhat = "reaching the memory of the other ranks' GPUs";
    const auto all_gather = [&](const std::string& bytes) {
      return group->all_gather(bytes, kWhat);
    };
    try {
      auto peers = kernels::make_peer_collectives({.rank = group->rank(),
                                                   .size = group->size(),
                                                   .deadline = deadline,
                                                   .all_gather = all_gather});
      return std::make_unique<PeerGroup>(std::move(group), axis, std::move(peers));
    } catch (const comm::GroupError&) {
      throw;
    } catch (const std::runtime_error& error) {  // of all ranks alike
      if (group->rank() == 0)
        std::fputs(fmt::format("small sums over {} go through NCCL: {}\n", comm::name_of(axis),
                               error.what())
                       .c_str(),
                   stderr);
      return group;
    }
  };
}

}  // namespace slime::engine
