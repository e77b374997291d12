#include "model/whole_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "model/stored_parts.h"

namespace slime::model {
namespace {

void copy_to_(const Tensor& buffer, int64_t begin, std::string_view bytes) {
  if (buffer.is_cpu()) {
    std::memcpy(static_cast<char*>(buffer.data_ptr()) + begin, bytes.data(), bytes.size());
    return;
  }
  const auto size = static_cast<int64_t>(bytes.size());
  const Tensor from = at::from_blob(const_cast<char*>(bytes.data()), {size}, at::kByte);
  buffer.view(at::kByte).narrow(0, begin, size).copy_(from);
}

/// Pieces that follow one another go to a GPU together: of a column slice each row is one.
class Pieces {
 public:
  explicit Pieces(Tensor buffer) : buffer_(std::move(buffer)) {}

  void add(int64_t begin, std::string_view bytes) {
    if (buffer_.is_cpu()) return copy_to_(buffer_, begin, bytes);
    if (begin != begin_ + static_cast<int64_t>(bytes_.size())) {
      flush();
      begin_ = begin;
    }
    bytes_ += bytes;
  }
  void flush() {
    if (!bytes_.empty()) copy_to_(buffer_, begin_, bytes_);
    begin_ += static_cast<int64_t>(bytes_.size());
    bytes_.clear();
  }

 private:
  const Tensor buffer_;
  int64_t begin_ = 0;
  std::string bytes_;
};

/// Bytes of the whole buffers, from `offset` on.
struct Window {
  int64_t offset;
  std::string_view bytes;
  int64_t end() const { return offset + static_cast<int64_t>(bytes.size()); }
  bool meets(int64_t begin, int64_t size) const { return begin < end() && offset < begin + size; }
};

/// What the window has of `part` goes behind `own_begin` bytes of the pieces' buffer.
void write_part(const StoredPart& part, int64_t own_begin, const Window& window, Pieces& pieces) {
  const int64_t element = part.value.element_size(), whole = part.whole_begin;
  if (!window.meets(whole, c10::multiply_integers(part.full_shape) * element)) return;
  const comm::Range range{(window.offset - whole) / element,
                          (window.end() - whole + element - 1) / element};
  part.slices.for_each_run(part.full_shape, range, [&](const Slices::Run& run) {
    const int64_t begin = whole + run.whole_begin * element, from = std::max(window.offset, begin),
                  to = std::min(window.end(), begin + run.size * element);
    if (from < to)
      pieces.add(own_begin + run.own_begin * element + from - begin,
                 window.bytes.substr(static_cast<std::size_t>(from - window.offset),
                                     static_cast<std::size_t>(to - from)));
  });
}

/// Where a view begins in its buffer, in bytes.
int64_t begin_in(const Tensor& buffer, const Tensor& view) {
  return static_cast<char*>(view.data_ptr()) - static_cast<char*>(buffer.data_ptr());
}

/// All of the window, of a rank that holds everything.
void write_buffers(const Weights& own, const Window& window) {
  int64_t begin = 0;
  for (const Tensor& buffer : own.buffers().numbers()) {
    const auto size = static_cast<int64_t>(buffer.nbytes());
    const int64_t from = std::max(window.offset, begin), to = std::min(window.end(), begin + size);
    if (from < to)
      copy_to_(buffer, from - begin,
               window.bytes.substr(static_cast<std::size_t>(from - window.offset),
                                   static_cast<std::size_t>(to - from)));
    begin += size;
  }
  check(!own.has_formats() || begin == whole_bytes(own),
        "the buffers of one rank are the whole ones");
}

/// Where the codes and the factors of tensors()[i] are in the whole buffers; elsewhere its parts need not be looked at.
bool may_meet(const Weights& own, const NamedWeight& weight, const Window& window) {
  const int64_t element = own.flat().element_size(),
                elements = c10::multiply_integers(weight.full_shape);
  if (weight.offset >= 0) return window.meets(weight.whole_offset * element, elements * element);
  const int64_t codes = own.num_whole_elements() * element, factors = codes + own.num_whole_codes();
  // A factor is of at least one code.
  return window.meets(codes + weight.whole_offset, elements) ||
         window.meets(factors + weight.whole_factors * static_cast<int64_t>(sizeof(float)),
                      elements * static_cast<int64_t>(sizeof(float)));
}

}  // namespace

int64_t whole_bytes(const Weights& own) {
  return own.num_whole_elements() * own.flat().element_size() + own.num_whole_codes() +
         own.num_whole_factors() * static_cast<int64_t>(sizeof(float));
}

void write_whole_(Weights& own, int64_t offset, std::string_view bytes) {
  const Window window{offset, bytes};
  check(offset >= 0 && window.end() <= whole_bytes(own), "the bytes are of the whole buffers");
  const bool is_whole = std::ranges::all_of(
      own.tensors(), [](const NamedWeight& weight) { return weight.slices.is_whole(); });
  if (is_whole) return write_buffers(own, window);
  const WeightBuffers buffers = own.buffers();
  Pieces numbers(buffers.flat_N), codes(buffers.codes_Q), factors(buffers.scales_S);
  for (size_t i = 0; i < own.tensors().size(); ++i) {
    if (!may_meet(own, own.tensors()[i], window)) continue;
    const std::vector<StoredPart> parts = stored_parts(own, i);
    const bool is_plain = parts.size() == 1;
    write_part(parts[0], begin_in(is_plain ? buffers.flat_N : buffers.codes_Q, parts[0].value),
               window, is_plain ? numbers : codes);
    if (!is_plain)
      write_part(parts[1], begin_in(buffers.scales_S, parts[1].value), window, factors);
  }
  numbers.flush();
  codes.flush();
  factors.flush();
}

}  // namespace slime::model
