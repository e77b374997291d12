#include "model/whole_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "core/error.h"

namespace slime::model {
namespace {

int64_t product(const std::vector<int64_t>& shape, std::size_t begin, std::size_t end) {
  int64_t n = 1;
  for (std::size_t i = begin; i < end; ++i) n *= shape[i];
  return n;
}

/// Bytes that the rank has in one piece, there and in the whole buffer.
struct Run {
  int64_t whole_begin, own_begin, size;
};

void copy_to_(const Tensor& flat_N, int64_t begin, std::string_view bytes) {
  if (flat_N.is_cpu()) {
    std::memcpy(static_cast<char*>(flat_N.data_ptr()) + begin, bytes.data(), bytes.size());
    return;
  }
  const auto size = static_cast<int64_t>(bytes.size());
  const Tensor from = at::from_blob(const_cast<char*>(bytes.data()), {size}, at::kByte);
  flat_N.view(at::kByte).narrow(0, begin, size).copy_(from);
}

/// Pieces that follow one another go to a GPU together: of a column slice each row is one.
class Pieces {
 public:
  explicit Pieces(const Tensor& flat_N) : flat_N_(flat_N) {}

  void add(int64_t begin, std::string_view bytes) {
    if (flat_N_.is_cpu()) return copy_to_(flat_N_, begin, bytes);
    if (begin != begin_ + static_cast<int64_t>(bytes_.size())) {
      flush();
      begin_ = begin;
    }
    bytes_ += bytes;
  }
  void flush() {
    if (!bytes_.empty()) copy_to_(flat_N_, begin_, bytes_);
    begin_ += static_cast<int64_t>(bytes_.size());
    bytes_.clear();
  }

 private:
  const Tensor& flat_N_;
  int64_t begin_ = 0;
  std::string bytes_;
};

}  // namespace

int64_t whole_bytes(const Weights& own) {
  return own.num_whole_elements() * own.flat().element_size();
}

void write_whole_(Weights& own, int64_t offset, std::string_view bytes) {
  const Tensor& flat_N = own.flat();
  const int64_t end = offset + static_cast<int64_t>(bytes.size());
  check(offset >= 0 && end <= whole_bytes(own), "the bytes are of the whole buffer");
  const bool is_whole = std::ranges::all_of(
      own.tensors(), [](const NamedWeight& weight) { return weight.slice.dim < 0; });
  if (is_whole) return copy_to_(flat_N, offset, bytes);
  const int64_t element = flat_N.element_size();
  Pieces pieces(flat_N);
  const auto copy = [&](const Run& run) {
    const int64_t from = std::max(offset, run.whole_begin),
                  to = std::min(end, run.whole_begin + run.size);
    if (from < to)
      pieces.add(run.own_begin + from - run.whole_begin,
                 bytes.substr(static_cast<std::size_t>(from - offset),
                              static_cast<std::size_t>(to - from)));
  };
  for (const NamedWeight& weight : own.tensors()) {
    const std::vector<int64_t>& shape = weight.full_shape;
    const int64_t begin = weight.whole_offset * element,
                  size = product(shape, 0, shape.size()) * element;
    if (begin >= end || begin + size <= offset) continue;
    if (weight.slice.dim < 0) {
      copy({begin, weight.offset * element, size});
      continue;
    }
    const auto dim = static_cast<std::size_t>(weight.slice.dim);
    const int64_t inner = product(shape, dim + 1, shape.size()) * element,
                  whole_row = shape[dim] * inner,
                  own_row = (weight.slice.end - weight.slice.begin) * inner;
    const int64_t first = std::max<int64_t>(0, (offset - begin) / whole_row),
                  last = std::min((end - begin - 1) / whole_row, product(shape, 0, dim) - 1);
    for (int64_t row = first; row <= last; ++row)
      copy({begin + row * whole_row + weight.slice.begin * inner,
            weight.offset * element + row * own_row, own_row});
  }
  pieces.flush();
}

}  // namespace slime::model
