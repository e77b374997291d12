/// CudaDevice's tables of adapters that rows choose among (kernels/adapters.h).

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/divide_up.h"
#include "core/error.h"
#include "kernels/adapters.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/low_rank_pairs.h"
#include "kernels/cuda/products/low_rank.h"

namespace slime::kernels::cuda {
namespace {

/// Whether a pair of any slot fits the kernels: those of rows that take several adapters have no other form.
bool has_kernels(const LowRankPair& pair) {
  return pair.experts == 0 && pair.a.value.scalar_type() == at::kFloat &&
         is_whole(pair.a.value.size(1)) && is_whole(pair.begin) && is_whole(pair.end);
}

/// A table of a matrix, and what it is to hold.
struct NewTable {
  Tensor* on_device;
  std::vector<LowRankFactors> slots;

  int64_t num_bytes() const { return static_cast<int64_t>(slots.size() * sizeof(LowRankFactors)); }
};

constexpr int64_t kTableAlignment = 256;

/// Makes those that are not there yet, behind one another in one piece of memory.
void make_missing(std::vector<NewTable>& tables, int64_t pitch, const at::Device& device) {
  const auto is_missing = [](const NewTable& table) { return !table.on_device->defined(); };
  const int64_t missing = std::ranges::count_if(tables, is_missing);
  if (missing == 0) return;
  const Tensor memory = at::empty({missing * pitch}, at::TensorOptions(device).dtype(at::kByte));
  int64_t begin = 0;
  for (NewTable& table : tables) {
    if (!is_missing(table)) continue;
    *table.on_device = memory.narrow(0, begin, table.num_bytes());
    begin += pitch;
  }
}

/// One for each device: the pool hands its streams out in turn, also those of engines.
c10::Stream stream_of_tables(const at::Device& device) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, c10::Stream> streams;
  const std::lock_guard lock(mutex);
  const auto known = streams.find(device.index());
  if (known != streams.end()) return known->second;
  const c10::impl::VirtualGuardImpl guard(device.type());
  return streams
      .emplace(device.index(), guard.getStreamFromGlobalPool(device, /*isHighPriority=*/true))
      .first->second;
}

/// Into the device's tables, which are complete on return. Those that lie behind one another are one copy: one for each
/// of some hundred tables took 9 ms. On a stream of its own: behind what others compute it would wait for all of that.
/// Running passes read slots that stay, whose bytes are written as they are.
void place(std::vector<NewTable>& tables, const at::Device& device) {
  int64_t pitch = 0;
  for (const NewTable& table : tables)
    pitch = std::max(pitch, round_up(table.num_bytes(), kTableAlignment));
  const c10::Stream stream = stream_of_tables(device);
  const c10::StreamGuard guard(stream);
  make_missing(tables, pitch, device);
  const auto count = static_cast<int64_t>(tables.size());
  const Tensor host = at::empty({count * pitch}, at::TensorOptions(at::kByte).pinned_memory(true));
  for (int64_t i = 0; i < count; ++i) {
    const NewTable& table = tables[static_cast<size_t>(i)];
    std::memcpy(host.data_ptr<uint8_t>() + i * pitch, table.slots.data(),
                static_cast<size_t>(table.num_bytes()));
  }
  const auto on_device = [&](int64_t i) -> const Tensor& {
    return *tables[static_cast<size_t>(i)].on_device;
  };
  const auto is_behind = [&](int64_t i) {
    return on_device(i).is_alias_of(on_device(i - 1)) &&
           on_device(i).storage_offset() == on_device(i - 1).storage_offset() + pitch;
  };
  for (int64_t begin = 0, end = 1; begin < count; begin = end++) {
    while (end < count && is_behind(end)) ++end;
    const int64_t bytes = (end - 1 - begin) * pitch + on_device(end - 1).numel();
    on_device(begin)
        .as_strided({bytes}, {1})
        .copy_(host.narrow(0, begin * pitch, bytes),
               /*non_blocking=*/true);
  }
  stream.synchronize();  // sync: other streams read them next
}

/// The factors of each slot, and in `most` the room that any of them needs.
std::vector<LowRankFactors> factors_of_slots(const MatrixAdapters& adapters, bool is_down,
                                             MatrixAdapters::Placed& most) {
  std::vector<LowRankFactors> slots(adapters.of_slot.size());
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    LowRankFactors& all = slots[slot];
    for (const LowRankPair* pair : adapters.of_slot[slot]) {
      FactorsOfPair factors({pair, pair->begin, 0, pair->end - pair->begin}, all.ranks);
      factors.a.splits = factors.b.splits = factors.a.splits_of_range();
      most.most_splits = std::max<int64_t>(most.most_splits, factors.a.splits);
      all.ranks += factors.a.rank;
      all.of[all.count++] = is_down ? factors.a : factors.b;
    }
    most.most_ranks = std::max<int64_t>(most.most_ranks, all.ranks);
    most.most_chunks = std::max<int64_t>(most.most_chunks, all.chunks());
  }
  return slots;
}

}  // namespace

void CudaDevice::check_pairs(const std::vector<const LowRankPair*>& pairs) const {
  if (std::ssize(pairs) > kMostLowRankFactors)
    throw ConfigError(fmt::format("an adapter has {} pairs beside one matrix; a GPU adds up to {}",
                                  pairs.size(), kMostLowRankFactors));
  for (const LowRankPair* pair : pairs) {
    if (!has_kernels(*pair))
      throw ConfigError(fmt::format(
          "an adapter is beside {} of a matrix's outputs from {} on, with {} inputs: a GPU adds "
          "to rows of several adapters in multiples of {}",
          pair->end - pair->begin, pair->begin, pair->a.value.size(1), kLowRankColumns));
  }
}

bool CudaDevice::place_pairs(std::span<MatrixAdapters* const> matrices) const {
  std::vector<NewTable> tables;
  std::vector<std::pair<MatrixAdapters::Placed*, MatrixAdapters::Placed>> rooms;
  std::optional<at::Device> device;
  bool grows = false;
  for (MatrixAdapters* adapters : matrices) {
    const LowRankPair* some = nullptr;
    for (const auto& pairs : adapters->of_slot) {
      if (!pairs.empty()) some = pairs.back();
    }
    MatrixAdapters::Placed& placed = adapters->placed;
    if (some == nullptr && !placed.down.defined()) continue;  // no slot ever had one
    device = placed.down.defined() ? placed.down.device() : some->a.value.device();
    MatrixAdapters::Placed most = placed;
    tables.push_back({&placed.down, factors_of_slots(*adapters, /*is_down=*/true, most)});
    tables.push_back({&placed.up, factors_of_slots(*adapters, /*is_down=*/false, most)});
    grows |= most.most_ranks > placed.most_ranks || most.most_chunks > placed.most_chunks ||
             most.most_splits > placed.most_splits;
    rooms.emplace_back(&placed, most);
  }
  if (device) place(tables, *device);
  for (const auto& [placed, most] : rooms) {  // what did not come needs no room
    placed->most_ranks = most.most_ranks;
    placed->most_chunks = most.most_chunks;
    placed->most_splits = most.most_splits;
  }
  return grows;
}

}  // namespace slime::kernels::cuda
