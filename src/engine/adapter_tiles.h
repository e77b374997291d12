#pragma once

/// Rows of a step by the adapters that they take, in tiles as a GPU reads them (kernels/adapters.h).

#include <cstdint>
#include <span>
#include <vector>

#include "engine/scheduler.h"
#include "engine/step_block.h"
#include "engine/step_runner.h"
#include "kernels/adapters.h"
#include "model/network.h"

namespace slime::engine {

/// How many adapters rows of this network choose among; 0: they do not.
int64_t adapters_of_rows(const model::Network& network);

/// The most that add_adapter_tiles() takes of a block, for so many rows.
int64_t adapter_tile_bytes(int64_t rows, int64_t num_adapters);

/// The slots of `rows` rows, of which those behind the chunks' are padding.
std::vector<int64_t> adapter_slots(std::span<const Chunk> chunks, int64_t rows);
/// Slots of the rows that draw.
std::vector<int64_t> drawing_slots(std::span<const Chunk> chunks);

/// `slot_T`: of each row, -1: none. `slot_N` and `row_N` have room for AdapterTiles::most(T, adapters).
void fill_adapter_tiles(std::span<const int64_t> slot_T, std::span<int32_t> slot_N,
                        std::span<int32_t> row_N);

/// Into the block.
kernels::AdapterTiles add_adapter_tiles(StepBlock& block, std::span<const int64_t> slot_T,
                                        int64_t num_adapters);

}  // namespace slime::engine
