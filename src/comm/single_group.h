#pragma once

/// The group of one rank: nothing moves, nothing is copied.

#include "comm/rank_group.h"
#include "core/error.h"

namespace slime::comm {

class SingleGroup final : public RankGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce_(const Tensor&, const char*, Reduction) override {}
  void reduce_scatter_(const Tensor&, std::span<const Range>, const char*) override {}
  void all_gather_(const Tensor&, std::span<const Range>, const char*) override {}
  void broadcast_(const Tensor&, int, const char*) override {}
  void exchange(std::span<const Message> messages, const char*, const char*) override {
    check(messages.empty(), "one rank has nobody to exchange messages with");
  }
  void barrier(const char*) override {}
  std::vector<std::string> all_gather(const std::string& bytes, const char*) override {
    return {bytes};
  }
};

}  // namespace slime::comm
