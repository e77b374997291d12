#pragma once

/// The group of a mesh on which nobody computes: for asking what a rank of some layout would hold,
/// where nobody else has been started.

#include "comm/rank_group.h"
#include "core/error.h"

namespace slime::comm {

class UnconnectedGroup final : public RankGroup {
 public:
  UnconnectedGroup(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce_(const Tensor&, const char*, Reduction) override { refuse(); }
  void reduce_scatter_(const Tensor&, std::span<const Range>, const char*) override { refuse(); }
  void all_gather_(const Tensor&, std::span<const Range>, const char*) override { refuse(); }
  void broadcast_(const Tensor&, int, const char*) override { refuse(); }
  void exchange(std::span<const Message>, const char*, const char*) override { refuse(); }
  void barrier(const char*) override { refuse(); }
  std::vector<std::string> all_gather(const std::string&, const char*) override { refuse(); }

 private:
  [[noreturn]] static void refuse() { throw BugError("nobody computes on this mesh"); }

  int rank_, size_;
};

}  // namespace slime::comm
