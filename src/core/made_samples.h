#pragma once

/// Samples that a user's function made of one sample.

#include <cstdint>
#include <utility>
#include <vector>

#include "core/sample.h"

namespace slime {

struct MadeSamples {
  // Implicit: most make one sample of one.
  MadeSamples(std::vector<Sample> made = {}, bool came_as_list = false)
      : parts(std::move(made)), is_list(came_as_list) {}

  std::vector<Sample> parts;  // of one execution, at least one
  /// It returned a list, of one sample too: such a list is scored as a whole.
  bool is_list;
  /// Tokens that engines sampled for the function and that none of its samples trains.
  int64_t untrained_tokens = 0;
};

}  // namespace slime
