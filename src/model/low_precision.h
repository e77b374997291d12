#pragma once

/// Published low-precision checkpoints as the numbers that they mean.
///
/// A weight NAME of such a file is several tensors:
///   FP8 in blocks    NAME float8 [O, I], NAME_scale_inv [O / B, I / B] rounded up: one factor a block
///   MXFP4            NAME_blocks uint8 [..., G, 16], NAME_scales uint8 [..., G]: two numbers a byte,
///                    32 of a group, 2^(scale - 127) (Open Compute's MX formats, version 1.0)
///   INT4 in groups   STEM.weight_packed int32 [O, I / 8], STEM.weight_scale [O, I / group]: eight
///                    numbers from -8 to 7 each

#include <filesystem>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "model/config.h"

namespace slime::model {

/// The tensors of a file that weight `name` is made of.
std::vector<std::string> stored_names(StoredForm form, const std::string& name);

/// A tensor of a file by its header.
struct StoredHeader {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
};

/// Why the tensors that stored_names() names, in its order, are not a weight of this shape; empty: they
/// are. Names the tensor.
std::string low_precision_problem(StoredForm form, int64_t fp8_block,
                                  const std::vector<StoredHeader>& parts,
                                  const std::vector<int64_t>& full_shape);

/// Throws ConfigError that names file and tensor where a factor is negative or not a finite number.
void check_factors(const std::filesystem::path& file, const std::string& name,
                   const Tensor& factors);

/// float32 [O, I]. `block`: rows and columns of one. Throws ConfigError for shapes that do not fit.
Tensor from_fp8_blocks(const Tensor& weight_OI, const Tensor& scale, int64_t block);

/// float32 [..., 32 G]: the even numbers in the low halves of bytes.
Tensor from_mxfp4(const Tensor& blocks, const Tensor& scales);

/// float32 [O, I], the first number in the lowest bits.
Tensor from_int4_groups(const Tensor& packed, const Tensor& scale);

}  // namespace slime::model
