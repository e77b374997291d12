#include "model/slices.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace slime::model {
namespace {

/// Of each dimension what the rank has of it.
std::vector<std::vector<comm::Range>> ranges_of(const std::vector<Slice>& slices,
                                                const std::vector<int64_t>& full_shape) {
  std::vector<std::vector<comm::Range>> ranges(full_shape.size());
  for (const Slice& slice : slices)
    ranges.at(static_cast<std::size_t>(slice.dim)).push_back({slice.begin, slice.end});
  for (std::size_t d = 0; d < ranges.size(); ++d) {
    if (ranges[d].empty()) ranges[d].push_back({0, full_shape[d]});
  }
  return ranges;
}

/// Elements from one index of each dimension to the next.
std::vector<int64_t> strides_of(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0; stride *= shape[d]) strides[d] = stride;
  return strides;
}

/// Walks over what a rank has, from the outermost dimension to the last one that is sliced.
struct Walk {
  std::vector<std::vector<comm::Range>> ranges;
  std::vector<int64_t> whole_stride, own_stride;
  std::size_t last;
  comm::Range window;
  const std::function<void(const Slices::Run&)>& visit;

  void go(std::size_t dim, int64_t whole, int64_t own) const {
    const int64_t stride = whole_stride[dim];
    for (const comm::Range& range : ranges[dim]) {
      const int64_t begin = whole + range.begin * stride, end = whole + range.end * stride;
      if (begin < window.end && end > window.begin) {
        if (dim == last) {
          visit({begin, own, end - begin});
        } else {
          const int64_t first = std::max(range.begin, (window.begin - whole) / stride),
                        behind = std::min(range.end, (window.end - whole - 1) / stride + 1);
          for (int64_t i = first; i < behind; ++i)
            go(dim + 1, whole + i * stride, own + (i - range.begin) * own_stride[dim]);
        }
      }
      own += range.size() * own_stride[dim];
    }
  }
};

}  // namespace

Slices::Slices(const Slice& slice) : Slices(std::vector<Slice>{slice}) {}

Slices::Slices(std::initializer_list<Slice> slices) : Slices(std::vector<Slice>(slices)) {}

Slices::Slices(std::vector<Slice> slices) : all_(std::move(slices)) {
  std::erase_if(all_, [](const Slice& slice) { return slice.dim < 0; });
  check(std::ranges::is_sorted(all_, {}, &Slice::dim), "slices lie by dimension");
}

Slices Slices::simplified(const std::vector<int64_t>& full_shape) const {
  std::vector<Slice> kept;
  for (auto first = all_.begin(); first != all_.end();) {
    const auto last = std::find_if(first, all_.end(),
                                   [&](const Slice& slice) { return slice.dim != first->dim; });
    int64_t next = 0;
    const bool is_in_order = std::all_of(first, last, [&](const Slice& slice) {
      return slice.begin == std::exchange(next, slice.end);
    });
    const bool is_all = is_in_order && next == full_shape.at(static_cast<std::size_t>(first->dim));
    if (!is_all) kept.insert(kept.end(), first, last);
    first = last;
  }
  return Slices(std::move(kept));
}

std::vector<int64_t> Slices::shape(const std::vector<int64_t>& full_shape) const {
  std::vector<int64_t> shape = full_shape;
  for (const Slice& slice : all_) shape.at(static_cast<std::size_t>(slice.dim)) = 0;
  for (const Slice& slice : all_)
    shape[static_cast<std::size_t>(slice.dim)] += slice.end - slice.begin;
  return shape;
}

std::vector<Slices::Piece> Slices::pieces(const std::vector<int64_t>& full_shape) const {
  std::vector<Piece> pieces(1);
  for (const std::vector<comm::Range>& ranges : ranges_of(all_, full_shape)) {
    std::vector<Piece> longer;
    for (const Piece& piece : pieces) {
      int64_t own = 0;
      for (const comm::Range& range : ranges) {
        longer.push_back(piece);
        longer.back().whole.push_back(range);
        longer.back().own.push_back({own, own + range.size()});
        own += range.size();
      }
    }
    pieces = std::move(longer);
  }
  return pieces;
}

void Slices::for_each_run(const std::vector<int64_t>& full_shape, const comm::Range& window,
                          const std::function<void(const Run&)>& visit) const {
  if (is_whole()) {
    int64_t size = 1;
    for (const int64_t extent : full_shape) size *= extent;
    if (window.begin < size && window.end > 0) visit({0, 0, size});
    return;
  }
  Walk{ranges_of(all_, full_shape),
       strides_of(full_shape),
       strides_of(shape(full_shape)),
       static_cast<std::size_t>(all_.back().dim),
       window,
       visit}
      .go(0, 0, 0);
}

Tensor Slices::of(const Tensor& whole) const {
  Tensor own = whole;
  for (auto first = all_.begin(); first != all_.end();) {
    const int dim = first->dim;
    std::vector<Tensor> parts;
    for (; first != all_.end() && first->dim == dim; ++first)
      parts.push_back(own.narrow(dim, first->begin, first->end - first->begin));
    own = parts.size() == 1 ? parts[0] : at::cat(parts, dim);
  }
  return own;
}

void Slices::place(const Tensor& own, const Tensor& whole) const {
  for (const Piece& piece : pieces(whole.sizes().vec()))
    box_of(whole, piece.whole).copy_(box_of(own, piece.own));
}

Tensor box_of(const Tensor& x, const Box& box) {
  Tensor part = x;
  for (std::size_t d = 0; d < box.size(); ++d)
    part = part.narrow(static_cast<int64_t>(d), box[d].begin, box[d].size());
  return part;
}

}  // namespace slime::model
