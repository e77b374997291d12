#pragma once

/// Adapters that a measurement makes up: pairs of one rank beside all linear layers of a network, uniform numbers.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/served_adapters.h"
#include "model/network.h"

namespace slime::bench {

struct AdapterOptions {
  int64_t rank = 0;   // 0: the network alone
  int64_t count = 0;  // that requests name in turn; 0: one that all rows take, as in a run
};

/// Tensors for a network, on its device, on which they stay.
std::shared_ptr<model::AdapterTensors> make_up_adapter(
    model::Network& network, int64_t rank, const comm::Mesh& mesh = comm::Mesh::single());

/// One that all rows take, as trainers and engines of a run have it.
void add_made_up_adapter(model::Network& network, int64_t rank,
                         const comm::Mesh& mesh = comm::Mesh::single());

/// Over the weights of `network`, which outlives it and has an adapter: with another of the same form.
std::unique_ptr<model::Network> with_made_up_adapter(model::Network& network);

/// The same of an engine, on its further ranks too (null: there are none), or `count` of them that its requests may
/// name: "0", "1", ...; null: they may name none.
std::unique_ptr<engine::ServedAdapters> open_made_up_adapters(
    model::Network& network, const AdapterOptions& options,
    const comm::Mesh& mesh = comm::Mesh::single(), engine::Followers* followers = nullptr);

/// The names of those; empty: none is named.
std::vector<std::string> names_of(const AdapterOptions& options);

}  // namespace slime::bench
