#include "model/low_precision.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>
#include <string_view>

#include "core/error.h"

namespace slime::model {
namespace {

void check_shapes(bool fit, const char* form) {
  if (!fit)
    throw ConfigError(fmt::format("weights in {} have scales of a shape that does not fit", form));
}

std::string without(const std::string& name, std::string_view tail) {
  return name.ends_with(tail) ? name.substr(0, name.size() - tail.size()) : name;
}

bool is_float8(at::ScalarType type) {
  return type == at::kFloat8_e4m3fn || type == at::kFloat8_e5m2;
}

bool is_factor(at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

int64_t blocks_of(int64_t size, int64_t block) { return (size + block - 1) / block; }

/// Of the MX formats' scales, 2^-127 to 2^127; 255 is no number.
Tensor powers_of_two() {
  std::vector<float> powers;
  for (int exponent = -127; exponent <= 127; ++exponent)
    powers.push_back(std::ldexp(1.0F, exponent));
  powers.push_back(std::numeric_limits<float>::quiet_NaN());
  return at::tensor(powers);
}

}  // namespace

std::vector<std::string> stored_names(StoredForm form, const std::string& name) {
  switch (form) {
    case StoredForm::kPlain:
      return {name};
    case StoredForm::kFp8Blocks:
      return {name, name + "_scale_inv"};
    case StoredForm::kMxfp4:
      return {name + "_blocks", name + "_scales"};
    case StoredForm::kInt4Groups: {
      const std::string stem = without(name, ".weight");
      return {stem + ".weight_packed", stem + ".weight_scale"};
    }
  }
  throw BugError("a form of stored weights");
}

std::string low_precision_problem(StoredForm form, int64_t fp8_block,
                                  const std::vector<StoredHeader>& parts,
                                  const std::vector<int64_t>& full_shape) {
  const StoredHeader &numbers = parts.at(0), &factors = parts.at(1);
  const auto problem = [](const StoredHeader& of, const std::string& wanted) {
    return fmt::format("tensor {} is {} [{}], should be {}", of.name, c10::toString(of.dtype),
                       fmt::join(of.shape, ", "), wanted);
  };
  const auto shape = [](const std::vector<int64_t>& sizes) {
    return fmt::format("[{}]", fmt::join(sizes, ", "));
  };
  if (full_shape.size() != (form == StoredForm::kMxfp4 ? 3U : 2U))
    return fmt::format("tensor {} is stored in low precision, and is no matrix", numbers.name);
  const int64_t rows = full_shape[0], columns = full_shape[1];
  if (form == StoredForm::kFp8Blocks) {
    const std::vector<int64_t> blocks{blocks_of(rows, fp8_block), blocks_of(columns, fp8_block)};
    if (!is_float8(numbers.dtype) || numbers.shape != full_shape)
      return problem(numbers, "float8 " + shape(full_shape));
    if (!is_factor(factors.dtype) || factors.shape != blocks)
      return problem(factors, fmt::format("float32, bfloat16 or float16 {}: one for each block of "
                                          "{} x {} numbers",
                                          shape(blocks), fp8_block, fp8_block));
  }
  if (form == StoredForm::kMxfp4) {
    const std::vector<int64_t> groups{rows, full_shape[2], columns / 32};
    std::vector<int64_t> bytes = groups;
    bytes.push_back(16);
    if (columns % 32 != 0 || numbers.dtype != at::kByte || numbers.shape != bytes)
      return problem(numbers, "uint8 " + shape(bytes));
    if (factors.dtype != at::kByte || factors.shape != groups)
      return problem(factors, "uint8 " + shape(groups));
  }
  if (form == StoredForm::kInt4Groups) {
    const std::vector<int64_t> packed{rows, columns / 8};
    if (columns % 8 != 0 || numbers.dtype != at::kInt || numbers.shape != packed)
      return problem(numbers, "int32 " + shape(packed));
    const bool has_groups = factors.shape.size() == 2 && factors.shape[0] == rows &&
                            factors.shape[1] > 0 && columns % factors.shape[1] == 0;
    if (!is_factor(factors.dtype) || !has_groups)
      return problem(
          factors, fmt::format("float32, bfloat16 or float16 [{}, groups], whose number divides {}",
                               rows, columns));
  }
  return {};
}

void check_factors(const std::filesystem::path& file, const std::string& name,
                   const Tensor& factors) {
  const bool are_fine = factors.scalar_type() == at::kByte
                            ? factors.ne(255).all().item<bool>()
                            : at::isfinite(factors).all().item<bool>();
  const auto refuse = [&](std::string_view what) {
    throw ConfigError(fmt::format("{}: tensor {} has {}", file.string(), name, what));
  };
  if (!are_fine) refuse("a factor that is not a finite number");
  if (factors.is_floating_point() && factors.lt(0).any().item<bool>())
    refuse("a negative factor: the file is damaged");
}

Tensor from_fp8_blocks(const Tensor& weight_OI, const Tensor& scale, int64_t block) {
  const int64_t rows = weight_OI.size(0), columns = weight_OI.size(1);
  check_shapes(scale.dim() == 2 && scale.size(0) == (rows + block - 1) / block &&
                   scale.size(1) == (columns + block - 1) / block,
               "FP8 blocks");
  const Tensor factor_OI = scale.to(at::kFloat)
                               .repeat_interleave(block, 0)
                               .narrow(0, 0, rows)
                               .repeat_interleave(block, 1)
                               .narrow(1, 0, columns);
  return weight_OI.to(at::kFloat).mul_(factor_OI);
}

Tensor from_mxfp4(const Tensor& blocks, const Tensor& scales) {
  check_shapes(blocks.dim() == scales.dim() + 1 && blocks.size(-1) == 16 &&
                   blocks.sizes().slice(0, static_cast<size_t>(scales.dim())) == scales.sizes(),
               "MXFP4");
  // Sign, two bits of exponent, one of mantissa.
  const Tensor numbers = at::tensor({0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F, -0.0F, -0.5F,
                                     -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F});
  const auto decoded = [&](const Tensor& code) {
    return numbers.index_select(0, code.reshape({-1}).to(at::kLong)).view(code.sizes());
  };
  const Tensor pairs =
      at::stack({decoded(blocks.bitwise_and(15)), decoded(blocks.bitwise_right_shift(4))}, -1);
  const Tensor factor = powers_of_two().index_select(0, scales.reshape({-1}).to(at::kLong));
  std::vector<int64_t> shape = scales.sizes().vec();
  shape.back() *= 32;
  return (pairs.flatten(-2) * factor.view(scales.sizes()).unsqueeze(-1)).view(shape);
}

Tensor from_int4_groups(const Tensor& packed, const Tensor& scale) {
  const int64_t rows = packed.size(0), columns = packed.size(1) * 8;
  check_shapes(scale.dim() == 2 && scale.size(0) == rows && scale.size(1) > 0 &&
                   columns % scale.size(1) == 0,
               "INT4 groups");
  const Tensor shifts = at::arange(0, 32, 4, at::kInt);
  const Tensor codes = packed.unsqueeze(-1).bitwise_right_shift(shifts).bitwise_and(15);
  const Tensor numbers = (codes - 8).to(at::kFloat).view({rows, scale.size(1), -1});
  return (numbers * scale.to(at::kFloat).unsqueeze(-1)).view({rows, columns});
}

}  // namespace slime::model
