#pragma once

/// Merge of an adapter into a copy of its base: W + s B A in float32, from the base as it is.

#include <memory>

#include "model/network.h"

namespace slime::model {

/// A float32 network with the only adapter of `network` merged. Where an adapter is for one of two tied
/// matrices, they are tied no more: the other stays as it is. `network` is whole and does not change.
std::unique_ptr<Network> merged(Network& network);

}  // namespace slime::model
