#include "model/whole_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "core/error.h"

namespace slime::model {
namespace {

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

/// Bytes of plain tensors, in pieces that may end anywhere, have no place in a matrix of another format.
void check_plain(const Weights& own) {
  if (!own.has_formats()) return;
  for (const NamedWeight& weight : own.tensors())
    if (weight.offset < 0)
      throw BugError(weight.name + " is a matrix in another format: it is made from whole tensors");
}

}  // namespace

int64_t whole_bytes(const Weights& own) {
  return own.num_whole_elements() * own.flat().element_size();
}

void write_whole_(Weights& own, int64_t offset, std::string_view bytes) {
  const Tensor& flat_N = own.flat();
  check_plain(own);
  const int64_t end = offset + static_cast<int64_t>(bytes.size());
  check(offset >= 0 && end <= whole_bytes(own), "the bytes are of the whole buffer");
  const bool is_whole = std::ranges::all_of(
      own.tensors(), [](const NamedWeight& weight) { return weight.slices.is_whole(); });
  if (is_whole) return copy_to_(flat_N, offset, bytes);
  const int64_t element = flat_N.element_size();
  Pieces pieces(flat_N);
  for (const NamedWeight& weight : own.tensors()) {
    const int64_t whole = weight.whole_offset * element, mine = weight.offset * element;
    const comm::Range window{(offset - whole) / element, (end - whole + element - 1) / element};
    if (end <= whole || offset >= whole + c10::multiply_integers(weight.full_shape) * element)
      continue;
    weight.slices.for_each_run(weight.full_shape, window, [&](const Slices::Run& run) {
      const int64_t begin = whole + run.whole_begin * element, from = std::max(offset, begin),
                    to = std::min(end, begin + run.size * element);
      if (from < to)
        pieces.add(mine + run.own_begin * element + from - begin,
                   bytes.substr(static_cast<std::size_t>(from - offset),
                                static_cast<std::size_t>(to - from)));
    });
  }
  pieces.flush();
}

}  // namespace slime::model
