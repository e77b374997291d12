#include "model/matrix_storage.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>

#include "core/divide_up.h"
#include "core/error.h"
#include "kernels/device.h"
#include "kernels/matrix_formats.h"

namespace slime::model {
namespace {

/// [begin, end) of `size` numbers in blocks: whole ones, but for those at the end.
bool is_of_blocks(const Slice& slice, int64_t size, int64_t block) {
  return slice.begin % block == 0 && (slice.end % block == 0 || slice.end == size);
}

/// Rows of the matrices that a part has, each with blocks of its own: slices of rows, of each expert.
std::vector<int64_t> rows_of(const MatrixPart& part) {
  const std::vector<int64_t> shape = part.slices.shape(part.full_shape);
  const bool is_stack = shape.size() == 3;
  std::vector<int64_t> rows;
  for (const Slice& slice : part.slices.all())
    if (slice.dim == static_cast<int>(shape.size()) - 2) rows.push_back(slice.end - slice.begin);
  if (rows.empty()) rows.push_back(shape[shape.size() - 2]);
  std::vector<int64_t> of_all;
  for (int64_t e = 0; e < (is_stack ? shape[0] : 1); ++e)
    of_all.insert(of_all.end(), rows.begin(), rows.end());
  return of_all;
}

void copy_where_defined(const Tensor& to, const Tensor& from, bool non_blocking) {
  if (to.defined()) Tensor(to).copy_(from, non_blocking);
}

}  // namespace

int64_t WeightBuffers::num_bytes() const {
  int64_t bytes = 0;
  for (const Tensor* tensor : {&flat_N, &constants_C, &codes_Q, &scales_S})
    if (tensor->defined()) bytes += static_cast<int64_t>(tensor->nbytes());
  return bytes;
}

std::vector<Tensor> WeightBuffers::numbers() const {
  std::vector<Tensor> all;
  for (const Tensor* tensor : {&flat_N, &codes_Q, &scales_S})
    if (tensor->defined()) all.push_back(*tensor);
  return all;
}

WeightBuffers WeightBuffers::empty_like() const {
  const auto room = [](const Tensor& x) { return x.defined() ? at::empty_like(x) : Tensor(); };
  return {room(flat_N), room(constants_C), room(codes_Q), room(scales_S)};
}

WeightBuffers WeightBuffers::beginning_as(const WeightBuffers& shorter) const {
  const auto beginning = [](const Tensor& x, const Tensor& like) {
    return x.defined() ? x.narrow(0, 0, like.size(0)) : Tensor();
  };
  return {beginning(flat_N, shorter.flat_N), beginning(constants_C, shorter.constants_C),
          beginning(codes_Q, shorter.codes_Q), beginning(scales_S, shorter.scales_S)};
}

void WeightBuffers::copy_from(const WeightBuffers& other, bool non_blocking) const {
  copy_where_defined(flat_N, other.flat_N, non_blocking);
  copy_where_defined(constants_C, other.constants_C, non_blocking);
  copy_where_defined(codes_Q, other.codes_Q, non_blocking);
  copy_where_defined(scales_S, other.scales_S, non_blocking);
}

/// Where slices cut blocks, a rank's numbers would differ from those of one rank.
std::string slice_problem(kernels::MatrixFormat matrices, const MatrixPart& part) {
  const kernels::FormatRow& format = kernels::row_of(matrices);
  const auto dims = static_cast<int>(part.full_shape.size());
  for (const Slice& slice : part.slices.all()) {
    const int64_t size = part.full_shape[static_cast<size_t>(slice.dim)];
    const int64_t block = slice.dim == dims - 1   ? format.block_columns
                          : slice.dim == dims - 2 ? format.block_rows
                                                  : 1;
    if (block == 0 ? slice.begin == 0 && slice.end == size : is_of_blocks(slice, size, block))
      continue;
    return fmt::format("{} {} to {} of {} cut blocks of its codes ({})",
                       slice.dim == dims - 1 ? "columns" : "rows", slice.begin, slice.end, size,
                       format.word);
  }
  return {};
}

std::vector<int64_t> factors_shape(kernels::MatrixFormat format, std::vector<int64_t> shape) {
  const kernels::FormatRow& row = kernels::row_of(format);
  shape[shape.size() - 2] = kernels::scale_rows(row, shape[shape.size() - 2]);
  shape.back() = kernels::scale_columns(row, shape.back());
  return shape;
}

Slices factor_slices(kernels::MatrixFormat format, const Slices& slices,
                     const std::vector<int64_t>& full_shape) {
  const kernels::FormatRow& row = kernels::row_of(format);
  const auto dims = static_cast<int>(full_shape.size());
  std::vector<Slice> of_factors;
  for (const Slice& slice : slices.all()) {
    const int64_t block = slice.dim == dims - 1   ? row.block_columns
                          : slice.dim == dims - 2 ? row.block_rows
                                                  : 1;
    if (block == 0) continue;  // all of it
    of_factors.push_back({slice.dim, slice.begin / block, divide_up(slice.end, block)});
  }
  return Slices(std::move(of_factors)).simplified(factors_shape(format, full_shape));
}

std::vector<Tensor> codes_of(kernels::MatrixFormat format, const Tensor& plain) {
  int64_t code_bytes = 0, num_scales = 0;
  const MatrixStorage storage(format, {{plain.sizes().vec(), {}}}, code_bytes, num_scales);
  WeightBuffers room;
  room.codes_Q = at::empty({code_bytes}, plain.options().dtype(at::kByte));
  room.scales_S = at::empty({num_scales}, plain.options().dtype(at::kFloat));
  storage.convert(plain.contiguous(), room);
  return storage.part(room, 0);
}

MatrixStorage::MatrixStorage(kernels::MatrixFormat format, const std::vector<MatrixPart>& parts,
                             int64_t& code_bytes, int64_t& num_scales)
    : format_(format), codes_begin_(code_bytes), scales_begin_(num_scales) {
  const kernels::FormatRow& row = kernels::row_of(format);
  for (size_t i = 0; i < parts.size(); ++i) {
    inputs_ = parts[i].slices.shape(parts[i].full_shape).back();
    for (const int64_t rows : rows_of(parts[i])) {
      pieces_.push_back({i, rows, kernels::scale_rows(row, rows)});
      outputs_ += rows;
      scale_rows_ += pieces_.back().scale_rows;
    }
  }
  scale_columns_ = kernels::scale_columns(row, inputs_);
  code_bytes += round_up(outputs_ * inputs_ * static_cast<int64_t>(c10::elementSize(row.code)),
                         kStorageAlignment);
  num_scales += round_up(scale_rows_ * scale_columns_, kStorageAlignment);
}

Tensor MatrixStorage::codes_in(const WeightBuffers& buffers) const {
  const at::ScalarType code = kernels::row_of(format_).code;
  const int64_t bytes = outputs_ * inputs_ * static_cast<int64_t>(c10::elementSize(code));
  return buffers.codes_Q.narrow(0, codes_begin_, bytes).view(code).view({outputs_, inputs_});
}

Tensor MatrixStorage::scales_in(const WeightBuffers& buffers) const {
  return buffers.scales_S.narrow(0, scales_begin_, scale_rows_ * scale_columns_)
      .view({scale_rows_, scale_columns_});
}

void MatrixStorage::point_at(const WeightBuffers& buffers, kernels::Matrix& matrix) const {
  const int64_t block = kernels::row_of(format_).block_rows;
  std::vector<Tensor> rows;
  int64_t first = 0;
  for (const Piece& piece : pieces_) {
    rows.push_back(at::arange(piece.rows, at::kLong).div_(block, "floor").add_(first));
    first += piece.scale_rows;
  }
  matrix.format = format_;
  matrix.values = codes_in(buffers);
  matrix.scales = scales_in(buffers);
  matrix.scale_row_O = at::cat(rows).to(buffers.codes_Q.device());
}

void MatrixStorage::convert(const Tensor& plain, const WeightBuffers& to) const {
  const kernels::FormatRow& row = kernels::row_of(format_);
  const Tensor plain_OI = plain.view({outputs_, inputs_}), codes_OI = codes_in(to),
               scales_BC = scales_in(to);
  const kernels::Device& device = kernels::kernels_for(plain);
  struct Range {
    int64_t begin, rows, scale_begin, scale_rows;
  };
  const auto parts_of = [&](const Range& range) {
    return std::array{plain_OI.narrow(0, range.begin, range.rows),
                      codes_OI.narrow(0, range.begin, range.rows),
                      scales_BC.narrow(0, range.scale_begin, range.scale_rows)};
  };
  // Pieces that end with their blocks have the blocks of one matrix: experts are thousands of pieces, and a kernel
  // makes those of a layer at once. Without one each is made alone, which takes less memory on the way.
  std::vector<Range> pieces;
  const auto make = [&] {
    if (pieces.empty()) return;
    Range all = pieces.front();
    all.rows = pieces.back().begin + pieces.back().rows - all.begin;
    all.scale_rows = pieces.back().scale_begin + pieces.back().scale_rows - all.scale_begin;
    const auto [all_OI, all_codes, all_scales] = parts_of(all);
    if (!device.make_codes(format_, all_OI, all_codes, all_scales)) {
      for (const Range& piece : pieces) {
        const auto [part_OI, part_codes, part_scales] = parts_of(piece);
        kernels::quantise_(row, part_OI, part_codes, part_scales);
      }
    }
    pieces.clear();
  };
  int64_t begin = 0, first = 0;
  for (const Piece& piece : pieces_) {
    pieces.push_back({begin, piece.rows, first, piece.scale_rows});
    begin += piece.rows;
    first += piece.scale_rows;
    if (piece.rows % row.block_rows != 0) make();
  }
  make();
}

std::vector<Tensor> MatrixStorage::part(const WeightBuffers& buffers, size_t index) const {
  int64_t begin = 0, first = 0, rows = 0, scale_rows = 0;
  for (const Piece& piece : pieces_) {
    if (piece.part < index) {
      begin += piece.rows;
      first += piece.scale_rows;
    } else if (piece.part == index) {
      rows += piece.rows;
      scale_rows += piece.scale_rows;
    }
  }
  return {codes_in(buffers).narrow(0, begin, rows),
          scales_in(buffers).narrow(0, first, scale_rows)};
}

}  // namespace slime::model
