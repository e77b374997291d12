#include "comm/parallel_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"

namespace slime::comm {
namespace {

/// The coordinates with those of the axis set to zero: equal for the members of a group.
Coordinates without(Axis axis, Coordinates at) {
  // The dense axes and those of the experts are two ways to count the same ranks.
  const auto dense_only = [&] { at.ep = at.etp = at.edp = 0; };
  const auto experts_only = [&] { at.dp = at.tp = at.cp = 0; };
  switch (axis) {
    case Axis::kWorld:
      return {};
    case Axis::kTp:
      dense_only();
      at.tp = 0;
      break;
    case Axis::kCp:
      dense_only();
      at.cp = 0;
      break;
    case Axis::kDp:
      dense_only();
      at.dp = 0;
      break;
    case Axis::kPp:
      dense_only();
      at.pp = 0;
      break;
    case Axis::kDpCp:
      dense_only();
      at.dp = at.cp = 0;
      break;
    case Axis::kModel:
      dense_only();
      at.tp = at.cp = at.pp = 0;
      break;
    case Axis::kEtp:
      experts_only();
      at.etp = 0;
      break;
    case Axis::kEp:
      experts_only();
      at.ep = 0;
      break;
    case Axis::kEdp:
      experts_only();
      at.edp = 0;
      break;
  }
  return at;
}

}  // namespace

ParallelLayout engine_layout(int num_ranks) {
  return {.tp = num_ranks, .etp = num_ranks, .routes_all_rows = true};
}

void validate(const ParallelLayout& layout) {
  const std::array sizes{std::pair{"data", layout.dp},
                         std::pair{"tensor", layout.tp},
                         std::pair{"pipeline", layout.pp},
                         std::pair{"context", layout.cp},
                         std::pair{"expert", layout.ep},
                         std::pair{"expert tensor", layout.etp},
                         std::pair{"pipeline chunk", layout.chunks}};
  for (const auto& [name, size] : sizes) {
    if (size < 1)
      throw ConfigError(fmt::format("{} parallelism of {}: must be at least 1", name, size));
  }
  const int stage = layout.dp * layout.tp * layout.cp;
  if (stage % (layout.ep * layout.etp) != 0) {
    throw ConfigError(fmt::format(
        "expert parallelism of {} times expert tensor parallelism of {} does not divide the {} "
        "ranks of a pipeline stage (tensor {} x context {} x data {})",
        layout.ep, layout.etp, stage, layout.tp, layout.cp, layout.dp));
  }
}

Coordinates coordinates_of(const ParallelLayout& layout, int rank) {
  check(rank >= 0 && rank < layout.world_size(), "a rank is one of the layout");
  const auto take = [](int& rest, int size) {
    const int index = rest % size;
    rest /= size;
    return index;
  };
  Coordinates at;
  int dense = rank, experts = rank;
  at.tp = take(dense, layout.tp);
  at.cp = take(dense, layout.cp);
  at.dp = take(dense, layout.dp);
  at.pp = dense;
  at.etp = take(experts, layout.etp);
  at.ep = take(experts, layout.ep);
  at.edp = take(experts, layout.edp());
  return at;
}

const char* name_of(Axis axis) {
  constexpr std::array kNames{"tp",    "cp",  "dp", "pp",  "dp x cp",
                              "model", "etp", "ep", "edp", "world"};
  static_assert(kNames.size() == kNumAxes);
  return kNames[static_cast<std::size_t>(axis)];
}

std::vector<int> members_of(const ParallelLayout& layout, Axis axis, int rank) {
  const Coordinates own = without(axis, coordinates_of(layout, rank));
  std::vector<int> members;
  for (int other = 0; other < layout.world_size(); ++other) {
    if (without(axis, coordinates_of(layout, other)) == own) members.push_back(other);
  }
  return members;
}

}  // namespace slime::comm
