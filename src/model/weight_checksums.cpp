#include "model/weight_checksums.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/xxhash64.h"
#include "model/stored_parts.h"

namespace slime::model {
namespace {

constexpr const char* kWhat = "checksums of the weights";

template <typename Number>
std::string_view bytes_of(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

uint64_t checksum_of_bytes(const std::vector<uint64_t>& numbers) {
  return xxhash64(bytes_of(numbers));
}

/// Of what a rank has of a tensor: of the tensor itself, or of its codes and factors.
uint64_t own_checksum_of(const Weights& weights, size_t i) {
  std::vector<uint64_t> checksums;
  for (const Tensor& stored : weights.stored(i)) checksums.push_back(checksum_of(stored));
  return combined_checksum(checksums);
}

/// Of all ranks, in their order.
template <typename Number>
std::vector<std::vector<Number>> told_by_all(const std::vector<Number>& own,
                                             comm::RankGroup& ranks) {
  std::vector<std::vector<Number>> all;
  for (const std::string& told : ranks.all_gather(std::string(bytes_of(own)), kWhat)) {
    check(told.size() == bytes_of(own).size(), "ranks have as many slices");
    all.emplace_back(own.size());
    std::memcpy(all.back().data(), told.data(), told.size());
  }
  return all;
}

/// At rank 0 the tensor, elsewhere undefined. `slices`: of each rank.
Tensor put_together(const StoredPart& part, const std::vector<Slices>& slices,
                    comm::RankGroup& ranks) {
  const Tensor& own = part.value;
  using Direction = comm::Message::Direction;
  if (ranks.rank() != 0) {
    const std::array messages{comm::Message{Direction::kSend, 0, own}};
    ranks.exchange(messages, "gather", kWhat);
    return {};
  }
  const Tensor whole = at::empty(part.full_shape, own.options());
  part.slices.place(own, whole);
  std::vector<comm::Message> messages;
  for (int rank = 1; rank < ranks.size(); ++rank) {
    const Slices& theirs = slices[static_cast<std::size_t>(rank)];
    messages.push_back(
        {Direction::kReceive, rank, at::empty(theirs.shape(part.full_shape), own.options())});
  }
  ranks.exchange(messages, "gather", kWhat);
  for (const comm::Message& message : messages)
    slices[static_cast<std::size_t>(message.peer)].place(message.x, whole);
  return whole;
}

}  // namespace

uint64_t combined_checksum(const std::vector<uint64_t>& of_parts) {
  return of_parts.size() == 1 ? of_parts[0] : checksum_of_bytes(of_parts);
}

uint64_t checksum_of(const Tensor& tensor) {
  const Tensor here = tensor.to(at::kCPU).contiguous();  // sync: it is read here
  return xxhash64({static_cast<const char*>(here.const_data_ptr()), here.nbytes()});
}

WeightChecksums checksums_of(const Weights& weights) {
  const at::NoGradGuard no_grad;
  WeightChecksums checksums;
  for (size_t i = 0; i < weights.tensors().size(); ++i)
    checksums.push_back({weights.tensors()[i].name, own_checksum_of(weights, i)});
  for (const NamedConstant& constant : weights.constants())
    checksums.push_back({constant.name, checksum_of(constant.value)});
  return checksums;
}

WeightChecksums checksums_of(const Weights& weights, comm::RankGroup& ranks) {
  if (ranks.is_alone()) return checksums_of(weights);
  const at::NoGradGuard no_grad;
  const std::vector<StoredPart> parts = stored_parts(weights);
  std::vector<Slice> own_slices;
  std::vector<uint64_t> own_copies;  // of what each rank has whole
  for (const StoredPart& part : parts) {
    if (part.slices.is_whole()) {
      own_copies.push_back(checksum_of(part.value));
    } else {
      own_slices.insert(own_slices.end(), part.slices.all().begin(), part.slices.all().end());
    }
  }
  for (const NamedConstant& constant : weights.constants())
    own_copies.push_back(checksum_of(constant.value));
  const auto copies = told_by_all(own_copies, ranks);
  const auto slices = told_by_all(own_slices, ranks);
  std::size_t next_copy = 0;
  const auto checksum_of_copies = [&] {
    const std::size_t i = next_copy++;
    std::vector<uint64_t> of_ranks;
    for (const std::vector<uint64_t>& copy : copies) of_ranks.push_back(copy[i]);
    return std::ranges::count(of_ranks, of_ranks[0]) == ranks.size() ? of_ranks[0]
                                                                     : checksum_of_bytes(of_ranks);
  };
  std::size_t next_slice = 0;
  /// At rank 0; elsewhere it is nothing's.
  const auto checksum_of_part = [&](const StoredPart& part) -> uint64_t {
    if (part.slices.is_whole()) return checksum_of_copies();
    const std::size_t first = std::exchange(next_slice, next_slice + part.slices.all().size());
    std::vector<Slices> of_ranks;
    for (const std::vector<Slice>& told : slices)
      of_ranks.emplace_back(
          std::vector<Slice>(told.begin() + static_cast<std::ptrdiff_t>(first),
                             told.begin() + static_cast<std::ptrdiff_t>(next_slice)));
    const Tensor whole = put_together(part, of_ranks, ranks);
    return whole.defined() ? checksum_of(whole) : 0;
  };
  WeightChecksums checksums;
  auto part = parts.begin();
  for (const NamedWeight& weight : weights.tensors()) {
    std::vector<uint64_t> of_parts{checksum_of_part(*part++)};
    if (weight.offset < 0) of_parts.push_back(checksum_of_part(*part++));
    checksums.push_back({weight.name, combined_checksum(of_parts)});
  }
  for (const NamedConstant& constant : weights.constants())
    checksums.push_back({constant.name, checksum_of_copies()});
  return ranks.rank() == 0 ? checksums : WeightChecksums{};
}

void fill_with_noise(Weights& weights, uint64_t seed) {
  const at::NoGradGuard no_grad;
  at::Generator generator = at::detail::createCPUGenerator(seed);
  for (const NamedWeight& weight : weights.tensors()) {
    if (weight.offset < 0) continue;
    Tensor noise = at::empty(weight.shape, at::kFloat).uniform_(0, 1, generator);
    Weights::view(weights.flat(), weight).copy_(noise);
  }
  for (const NamedConstant& constant : weights.constants()) {
    Tensor value = constant.value;
    value.copy_(at::empty(value.sizes(), at::kFloat).uniform_(0, 1, generator));
  }
  if (!weights.has_formats()) return;
  // Codes of finite numbers, whatever the format.
  const WeightBuffers buffers = weights.buffers();
  Tensor(buffers.codes_Q)
      .copy_(at::empty(buffers.codes_Q.sizes(), at::kByte).random_(64, generator));
  Tensor(buffers.scales_S)
      .copy_(at::empty(buffers.scales_S.sizes(), at::kFloat).uniform_(0, 1, generator));
}

}  // namespace slime::model
