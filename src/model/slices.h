#pragma once

/// Shard of a tensor: slices of some dimensions, the others whole.
///
///   {}                                  the tensor
///   {{1, 4, 8}}                         columns 4 to 7
///   {{0, 0, 2}, {0, 8, 10}}             rows 0, 1, 8 and 9: a slice of each of two matrices in one tensor
///   {{0, 2, 4}, {1, 0, 3}, {1, 6, 9}}   of rows 2 and 3 these columns: two experts, of each gates and ups
///
/// The rank's own tensor has slices of one dimension behind one another, in the order given.

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <vector>

#include "comm/rank_group.h"
#include "core/tensor.h"

namespace slime::model {

/// [begin, end) along dimension `dim`; dim -1 means all of the tensor.
struct Slice {
  int dim = -1;
  int64_t begin = 0;
  int64_t end = 0;
  auto operator<=>(const Slice&) const = default;
};

/// The same of a matrix that begins at `begin` in a tensor of several.
inline Slice shifted(const Slice& slice, int64_t begin) {
  return slice.dim < 0 ? slice : Slice{slice.dim, begin + slice.begin, begin + slice.end};
}

/// Indices of a tensor, in each of its dimensions from begin to end.
using Box = std::vector<comm::Range>;

class Slices {
 public:
  Slices() = default;
  Slices(const Slice& slice);                   // NOLINT(google-explicit-constructor): one is some
  Slices(std::initializer_list<Slice> slices);  // by dimension; those of dimension -1 do not count
  explicit Slices(std::vector<Slice> slices);

  bool is_whole() const { return all_.empty(); }
  const std::vector<Slice>& all() const { return all_; }
  auto operator<=>(const Slices&) const = default;

  /// Without those that together are all of a tensor of this shape in their dimension.
  Slices simplified(const std::vector<int64_t>& full_shape) const;

  /// Of the rank's own tensor.
  std::vector<int64_t> shape(const std::vector<int64_t>& full_shape) const;

  /// A part that is a box of the tensor and of the rank's own.
  struct Piece {
    Box whole, own;
  };
  std::vector<Piece> pieces(const std::vector<int64_t>& full_shape) const;

  /// Elements that lie behind one another in the tensor and in the rank's own, both row-major.
  struct Run {
    int64_t whole_begin, own_begin, size;
  };
  /// In the order of the rank's own tensor, all that reach into elements [window.begin, window.end) of the
  /// tensor.
  void for_each_run(const std::vector<int64_t>& full_shape, const comm::Range& window,
                    const std::function<void(const Run&)>& visit) const;

  /// The rank's own tensor: a view of `whole` where it is one box of it.
  Tensor of(const Tensor& whole) const;
  /// Puts the rank's own tensor into its place.
  void place(const Tensor& own, const Tensor& whole) const;

 private:
  std::vector<Slice> all_;
};

/// A view.
Tensor box_of(const Tensor& x, const Box& box);

}  // namespace slime::model
