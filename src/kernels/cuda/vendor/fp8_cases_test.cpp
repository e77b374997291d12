// Cases of fp8/fp8_quantise (kernel_cases_for_tests.h).
#define SLIME_KERNELS_ON_CPU

#include "core/divide_up.h"
#include "kernels/cuda/fp8/quantise.h"
#include "kernels/cuda/vendor/kernel_cases_for_tests.h"
#include "kernels/matrix_formats.h"

namespace slime::kernels::cuda {
namespace {

Tensor empty_codes(int64_t rows, int64_t inputs) {
  return at::full({rows, inputs}, 0x7f, at::TensorOptions(at::kByte));
}

/// Bits of the codes and factors that kernels/matrix_formats.h makes.
double error_of_blocks(BlockExecutor& executor, at::ScalarType type) {
  const int64_t outputs = 300, inputs = 264;
  const Tensor plain = random({outputs, inputs}, type);
  plain.narrow(0, 256, 44).zero_();  // a block of zeros has a factor too
  const Tensor codes = empty_codes(outputs, inputs), factors = unwritten({3, 3});
  fp8::quantise_blocks(to_number(type), plain.data_ptr(), codes.data_ptr<uint8_t>(),
                       factors.data_ptr<float>(), outputs, inputs, &executor);
  const FormatRow& format = row_of(MatrixFormat::kFp8Blocks);
  const Tensor twin = at::empty({outputs, inputs}, format.code), scales = at::empty({3, 3});
  quantise_(format, plain, twin, scales);
  return std::max(error_of_bits(codes, twin.view(at::kByte)), error_of_bits(factors, scales));
}

struct MadeRows {
  Tensor codes, factors;
  fp8::Rows rows;
  MadeRows(int64_t count, int64_t inputs)
      : codes(empty_codes(count, inputs)),
        factors(unwritten({fp8::factor_rows(inputs), fp8::factor_pitch(count)})),
        rows{codes.data_ptr<uint8_t>(), factors.data_ptr<float>()} {}
  /// Factor by row and number.
  Tensor factor_TI() const {
    return factors.narrow(1, 0, codes.size(0))
        .t()
        .repeat_interleave(128, 1)
        .narrow(1, 0, codes.size(1));
  }
  /// Bits of the codes and factors of these numbers.
  double error_of_codes(const Tensor& x_TI) const {
    const int64_t padded = round_up(x_TI.size(1), int64_t{128});
    const Tensor wide = x_TI.to(at::kFloat);
    const Tensor amax = at::constant_pad_nd(wide.abs(), {0, padded - wide.size(1)})
                            .view({wide.size(0), -1, 128})
                            .amax(2);
    const Tensor factor = amax.clamp_min(1e-4F) / 448.0F;
    const Tensor twin =
        (wide / factor.repeat_interleave(128, 1).narrow(1, 0, wide.size(1))).to(at::kFloat8_e4m3fn);
    return std::max(error_of_bits(codes, twin.view(at::kByte)),
                    error_of_bits(factors.narrow(1, 0, wide.size(0)), factor.t()));
  }
  /// Of numbers that are within `bound` of what became codes: half a step of a code is a sixteenth of the largest.
  double error_of_numbers(const Tensor& exact_TI) const {
    return error_of(codes.view(at::kFloat8_e4m3fn).to(at::kFloat) * factor_TI(), exact_TI,
                    1.0 / 15);
  }
};

double error_of_quantised_rows(BlockExecutor& executor, at::ScalarType type) {
  const Tensor x = random({3, 1164}, type) * 5;
  const MadeRows made(3, 1164);
  fp8::quantise_rows(to_number(type), x.data_ptr(), made.rows, 3, 1164, &executor);
  return made.error_of_codes(x);
}

double error_of_gated_rows(BlockExecutor& executor) {
  const int64_t width = 260;
  const Tensor gate_up = random({5, 2, width}, at::kBFloat16);
  const MadeRows made(5, width);
  fp8::swiglu_rows(gate_up.data_ptr(), made.rows, 5, width, &executor);
  const Tensor wide = gate_up.to(at::kDouble);
  return made.error_of_numbers(at::silu(wide.select(1, 0)) * wide.select(1, 1));
}

/// is_apart: the sum is not where x is.
double error_of_normed_rows(BlockExecutor& executor, int64_t hidden, bool is_apart) {
  const int64_t rows = 2, splits = 3;
  const Tensor x = random({rows, hidden}, at::kBFloat16), before = x.clone();
  const Tensor partials = random({splits, rows, hidden}), bias = random({hidden}, at::kBFloat16);
  const Tensor weight = random({hidden}, at::kBFloat16);
  const MadeRows made(rows, hidden);
  if (is_apart) x.fill_(NAN);
  fp8::norm_rows(is_apart ? before.data_ptr() : x.data_ptr(), x.data_ptr(),
                 partials.data_ptr<float>(), splits, bias.data_ptr(), weight.data_ptr(), made.rows,
                 rows, hidden, 1e-6F, &executor);
  const Tensor sum =
      before.to(at::kDouble) + partials.to(at::kDouble).sum(0) + bias.to(at::kDouble);
  const Tensor wide = x.to(at::kDouble);
  const Tensor exact =
      wide * (wide.square().mean(-1, true) + 1e-6).rsqrt() * weight.to(at::kDouble);
  return std::max(error_of(x, sum, rounding_bound(at::kBFloat16)), made.error_of_numbers(exact));
}

/// Bits of the numbers that kernels/matrix_formats.h makes of experts' codes, whose parts end within blocks.
double error_of_expert_numbers(BlockExecutor& executor, at::ScalarType type) {
  const int64_t experts = 3, part = 150, inputs = 264;
  Matrix stack;
  stack.format = MatrixFormat::kFp8Blocks;
  const Tensor bytes = at::randint(0, 256, {experts, 2 * part, inputs}, at::kLong);
  const Tensor codes =
      at::where(bytes.remainder(128) == 127, at::zeros_like(bytes), bytes).to(at::kByte);
  stack.values = codes.view(at::kFloat8_e4m3fn);
  stack.scales = random({experts, 4, 3}).abs() + 0.1;
  const Tensor row = at::arange(part, at::kLong).div_(128, "floor");
  stack.scale_row_O = at::cat({row, row + 2});
  const Tensor numbers = at::empty(codes.sizes(), at::TensorOptions(type));
  fp8::write_numbers(to_number(type),
                     {.codes_EOI = codes.data_ptr<uint8_t>(),
                      .factors_EBC = stack.scales.data_ptr<float>(),
                      .factor_row_O = stack.scale_row_O.data_ptr<int64_t>(),
                      .experts = experts,
                      .outputs = 2 * part,
                      .inputs = inputs,
                      .factor_rows = 4},
                     numbers.data_ptr(), &executor);
  return error_of_bits(numbers, numbers_of(stack, type));
}

}  // namespace

std::vector<KernelCase> fp8_cases() {
  std::vector<KernelCase> cases;
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const std::string of = type == at::kFloat ? "Floats" : type == at::kHalf ? "Halves" : "BFloats";
    cases.push_back({"fp8/fp8_quantise",
                     "CodesOfBlocksOf" + of,
                     [type](BlockExecutor& on) { return error_of_blocks(on, type); },
                     {exchange_mistake(8), barrier_mistake(), absent_thread(17)}});
    cases.push_back({"fp8/fp8_quantise",
                     "CodesOfRowsOf" + of,
                     [type](BlockExecutor& on) { return error_of_quantised_rows(on, type); },
                     {exchange_mistake(16), absent_thread(200)}});
    cases.push_back({"fp8/fp8_quantise",
                     "NumbersOfCodesOf" + of,
                     [type](BlockExecutor& on) { return error_of_expert_numbers(on, type); },
                     {absent_thread(17)}});
  }
  cases.push_back({"fp8/fp8_quantise",
                   "CodesOfGatedRows",
                   error_of_gated_rows,
                   {exchange_mistake(16), absent_thread(3)}});
  for (const int64_t hidden : {int64_t{264}, int64_t{5120}})
    cases.push_back(
        {"fp8/fp8_quantise",
         "CodesOfNormedRowsOf" + std::to_string(hidden),
         [hidden](BlockExecutor& on) { return error_of_normed_rows(on, hidden, hidden == 264); },
         {exchange_mistake(16), barrier_mistake(), absent_thread(9)}});
  return cases;
}

}  // namespace slime::kernels::cuda
