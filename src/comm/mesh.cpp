#include "comm/mesh.h"

#include <map>

#include "comm/single_group.h"

namespace slime::comm {

Mesh::Mesh(const ParallelLayout& layout, int rank, const MakeGroup& make_group)
    : sizes_(layout), rank_(rank) {
  validate(layout);
  at_ = coordinates_of(layout, rank);
  std::map<std::vector<int>, RankGroup*> known;
  for (int i = 0; i < kNumAxes; ++i) {
    const auto axis = static_cast<Axis>(i);
    const std::vector<int> members = members_of(layout, axis, rank);
    RankGroup*& group = known[members];
    if (group == nullptr) {
      if (members.size() > 1) {
        owned_.push_back(make_group(axis, members));
      } else {
        owned_.push_back(std::make_unique<SingleGroup>());
      }
      group = owned_.back().get();
    }
    groups_[i] = group;
  }
}

const Mesh& Mesh::single() {
  static const Mesh one({}, 0, {});
  return one;
}

}  // namespace slime::comm
