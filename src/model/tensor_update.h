#pragma once

/// Some of a model's tensors, under the names of its files, that take the place of those it has: what
/// trainers send to a running server, a bucket at a time.

#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "model/network.h"

namespace slime::model {

struct TensorUpdate {
  std::vector<std::pair<std::string, Tensor>> tensors;
};

/// Puts them into a network, in its precision: whole, or a rank's slices of them. Tensors that files have
/// beside the network's (a tied head, layers that predict further tokens) are left out. Throws ConfigError
/// with all problems, and the network is then as it was: names that it does not have, other shapes,
/// numbers that are not finite.
void write_tensors(const TensorUpdate& update, Network& network);

}  // namespace slime::model
