#include "model/weight_checksums.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "core/error.h"
#include "core/xxhash64.h"

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

/// Slices of one tensor: entries [first, last) of this rank's, and of rank r slices[r][first], ...
struct SlicedTensor {
  std::size_t first, last;
  const std::vector<std::vector<Slice>>& slices;
};

/// At rank 0 the tensor, elsewhere undefined.
Tensor put_together(const Weights& weights, const SlicedTensor& tensor, comm::RankGroup& ranks) {
  const NamedWeight& named = weights.tensors()[tensor.first];
  const bool is_first = ranks.rank() == 0;
  const Tensor whole = is_first ? at::empty(named.full_shape, weights.flat().options()) : Tensor();
  for (std::size_t i = tensor.first; i < tensor.last; ++i) {
    const Tensor own = Weights::view(weights.flat(), weights.tensors()[i]);
    using Direction = comm::Message::Direction;
    if (!is_first) {
      const std::array messages{comm::Message{Direction::kSend, 0, own}};
      ranks.exchange(messages, "gather", kWhat);
      continue;
    }
    std::vector<comm::Message> messages;
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const Slice& slice = tensor.slices[static_cast<std::size_t>(rank)][i];
      const Tensor place = whole.narrow(slice.dim, slice.begin, slice.end - slice.begin);
      if (rank == 0) {
        place.copy_(own);
      } else {
        messages.push_back({Direction::kReceive, rank, at::empty(place.sizes(), own.options())});
      }
    }
    ranks.exchange(messages, "gather", kWhat);
    for (const comm::Message& message : messages) {
      const Slice& slice = tensor.slices[static_cast<std::size_t>(message.peer)][i];
      whole.narrow(slice.dim, slice.begin, slice.end - slice.begin).copy_(message.x);
    }
  }
  return whole;
}

}  // namespace

uint64_t checksum_of(const Tensor& tensor) {
  const Tensor here = tensor.to(at::kCPU).contiguous();  // sync: it is read here
  return xxhash64({static_cast<const char*>(here.const_data_ptr()), here.nbytes()});
}

WeightChecksums checksums_of(const Weights& weights) {
  const at::NoGradGuard no_grad;
  WeightChecksums checksums;
  for (const NamedWeight& weight : weights.tensors())
    checksums.push_back({weight.name, checksum_of(Weights::view(weights.flat(), weight))});
  for (const NamedConstant& constant : weights.constants())
    checksums.push_back({constant.name, checksum_of(constant.value)});
  return checksums;
}

WeightChecksums checksums_of(const Weights& weights, comm::RankGroup& ranks) {
  if (ranks.is_alone()) return checksums_of(weights);
  const at::NoGradGuard no_grad;
  std::vector<Slice> own_slices;
  std::vector<uint64_t> own_copies;  // of what each rank has whole
  for (const NamedWeight& weight : weights.tensors()) {
    own_slices.push_back(weight.slice);
    if (weight.slice.dim < 0)
      own_copies.push_back(checksum_of(Weights::view(weights.flat(), weight)));
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
  WeightChecksums checksums;
  const std::vector<NamedWeight>& tensors = weights.tensors();
  for (std::size_t i = 0, next = 0; i < tensors.size(); i = next) {
    for (next = i + 1; next < tensors.size() && tensors[next].name == tensors[i].name;) ++next;
    if (tensors[i].slice.dim < 0) {
      checksums.push_back({tensors[i].name, checksum_of_copies()});
      continue;
    }
    const Tensor whole = put_together(weights, {i, next, slices}, ranks);
    if (whole.defined()) checksums.push_back({tensors[i].name, checksum_of(whole)});
  }
  for (const NamedConstant& constant : weights.constants())
    checksums.push_back({constant.name, checksum_of_copies()});
  return ranks.rank() == 0 ? checksums : WeightChecksums{};
}

void fill_with_noise(Weights& weights, uint64_t seed) {
  const at::NoGradGuard no_grad;
  at::Generator generator = at::detail::createCPUGenerator(seed);
  for (const NamedWeight& weight : weights.tensors()) {
    Tensor noise = at::empty(weight.shape, at::kFloat).uniform_(0, 1, generator);
    Weights::view(weights.flat(), weight).copy_(noise);
  }
  for (const NamedConstant& constant : weights.constants()) {
    Tensor value = constant.value;
    value.copy_(at::empty(value.sizes(), at::kFloat).uniform_(0, 1, generator));
  }
}

}  // namespace slime::model
