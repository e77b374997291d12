#pragma once

/// Forests that tests of attention run over.

#include <vector>

#include "kernels/segments.h"

namespace slime::kernels::cpu {

struct TreeCase {
  const char* name;
  std::vector<Segment> segments;
  int64_t window;
};

inline std::vector<TreeCase> tree_cases() {
  return {
      {"one token", {{0, 1, -1}}, 0},
      {"block edges", {{0, 127, -1}, {127, 255, -1}, {255, 384, -1}}, 0},
      {"one prompt, four responses",
       {{0, 70, -1}, {70, 75, 0}, {75, 240, 0}, {240, 241, 0}, {241, 370, 0}},
       0},
      {"deep tree",
       {{0, 3, -1}, {3, 5, 0}, {5, 135, 1}, {135, 136, 2}, {136, 140, 1}, {140, 150, 3}},
       0},
      {"window", {{0, 150, -1}, {150, 330, 0}, {330, 333, 1}}, 16},
      {"window of one", {{0, 9, -1}, {9, 12, 0}}, 1},
      {"window beyond a block", {{0, 400, -1}, {400, 420, 0}}, 200},
  };
}

}  // namespace slime::kernels::cpu
