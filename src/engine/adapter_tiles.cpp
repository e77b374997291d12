#include "engine/adapter_tiles.h"

#include <algorithm>
#include <map>

#include "engine/drawn_rows.h"
#include "engine/served_adapters.h"
#include "model/adapters.h"

namespace slime::engine {

using kernels::AdapterTiles;

int64_t adapters_of_rows(const model::Network& network) {
  const model::Adapters* adapters = network.adapters();
  return adapters != nullptr && adapters->chooses_by_row() ? adapters->num_slots() : 0;
}

int64_t adapter_tile_bytes(int64_t rows, int64_t num_adapters) {
  if (num_adapters == 0) return 0;
  constexpr int64_t kNumber = sizeof(int32_t), kAlignments = 64;
  return AdapterTiles::most(rows, num_adapters) * (1 + AdapterTiles::kRows) * kNumber + kAlignments;
}

std::vector<int64_t> adapter_slots(std::span<const Chunk> chunks, int64_t rows) {
  std::vector<int64_t> slots;
  for (const Chunk& chunk : chunks)
    slots.insert(slots.end(), static_cast<std::size_t>(chunk.num_tokens),
                 slot_of(chunk.request->adapter));
  slots.resize(static_cast<std::size_t>(rows), -1);
  return slots;
}

std::vector<int64_t> drawing_slots(std::span<const Chunk> chunks) {
  std::vector<int64_t> slots;
  for (const DrawnRow& drawn : drawn_rows(chunks))
    slots.push_back(slot_of(chunks[drawn.chunk].request->adapter));
  return slots;
}

void fill_adapter_tiles(std::span<const int64_t> slot_T, std::span<int32_t> slot_N,
                        std::span<int32_t> row_N) {
  std::ranges::fill(slot_N, -1);
  std::ranges::fill(row_N, -1);
  std::map<int64_t, std::vector<int32_t>> rows_of_slot;
  for (std::size_t row = 0; row < slot_T.size(); ++row)
    rows_of_slot[slot_T[row]].push_back(static_cast<int32_t>(row));
  constexpr std::size_t kRows = AdapterTiles::kRows;
  std::size_t tile = 0;
  for (const auto& [slot, rows] : rows_of_slot) {
    for (std::size_t begin = 0; begin < rows.size(); begin += kRows, ++tile) {
      const auto of_tile = std::span(rows).subspan(begin, std::min(kRows, rows.size() - begin));
      slot_N[tile] = static_cast<int32_t>(slot);
      std::ranges::copy(of_tile, row_N.begin() + static_cast<int64_t>(tile * kRows));
    }
  }
}

AdapterTiles add_adapter_tiles(StepBlock& block, std::span<const int64_t> slot_T,
                               int64_t num_adapters) {
  AdapterTiles tiles;
  const int64_t most = AdapterTiles::most(std::ssize(slot_T), num_adapters);
  const auto slot_N = block.add<int32_t>(most);
  tiles.slot_N = block.last_on_device(at::kInt, most);
  const auto row_N = block.add<int32_t>(most * AdapterTiles::kRows);
  tiles.row_N = block.last_on_device(at::kInt, most * AdapterTiles::kRows);
  fill_adapter_tiles(slot_T, slot_N, row_N);
  return tiles;
}

}  // namespace slime::engine
