/// CudaDevice's products of matrices in codes (kernels/cuda/fp8/products.h).

#include <ATen/ATen.h>

#include "kernels/cuda/code_products.h"
#include "kernels/cuda/cuda_device.h"

namespace slime::kernels::cuda {
namespace {

using fp8::Product;

/// The products of a block of any number of rows.
class CodeChain {
 public:
  CodeChain(const BlockChain& chain, cudaStream_t stream)
      : chain_(chain),
        stream_(stream),
        rows_(chain.residual_TH.size(0)),
        hidden_(chain.residual_TH.size(1)),
        options_(chain.residual_TH.options()) {}

  Tensor run() const {
    const CodeRows input = added_norm(codes_of(chain_.attended_TC, stream_), chain_.output_HC,
                                      chain_.output_bias_H, chain_.post_norm_H);
    const CodeRows gated = gated_codes(input);
    if (!chain_.next_norm_H.defined()) {
      Tensor update_TH = at::empty({rows_, hidden_}, options_);
      multiply_codes(code_product_of(chain_.down_HF, chain_.down_bias_H, rows_, update_TH), gated,
                     stream_);
      return update_TH;
    }
    const CodeRows next = added_norm(gated, chain_.down_HF, chain_.down_bias_H, chain_.next_norm_H);
    Tensor heads_TE = at::empty({rows_, chain_.next_qkv_EH.outputs()}, options_);
    multiply_codes(code_product_of(chain_.next_qkv_EH, chain_.next_qkv_bias_E, rows_, heads_TE),
                   next, stream_);
    return heads_TE;
  }

 private:
  bool is_few() const { return rows_ <= fp8::kMostFewRows; }

  /// The product added to the residual stream, and that normed.
  CodeRows added_norm(const CodeRows& x, const Matrix& weight_HI, const Tensor& bias_H,
                      const Tensor& norm_H) const {
    const auto inputs = static_cast<int>(weight_HI.inputs()),
               outputs = static_cast<int>(weight_HI.outputs());
    const int splits = is_few()
                           ? fp8::few_product_splits(inputs, outputs)
                           : fp8::many_product_splits(static_cast<int>(rows_), inputs, outputs);
    const Tensor partials_STH = at::empty({splits, rows_, hidden_}, options_.dtype(at::kFloat));
    Product product = code_product_of(weight_HI, {}, rows_, partials_STH);
    product.epilogue = Product::Epilogue::kSplitK;
    multiply_codes(product, x, stream_);
    CodeRows normed(rows_, hidden_, options_);
    fp8::norm_rows(pointer(chain_.residual_TH), chain_.residual_TH.data_ptr(),
                   partials_STH.const_data_ptr<float>(), splits, pointer(bias_H), pointer(norm_H),
                   normed.of(), rows_, hidden_, static_cast<float>(chain_.eps), stream_);
    return normed;
  }

  CodeRows gated_codes(const CodeRows& input) const {
    return gated_code_rows(input, chain_.gate_up_2FH, chain_.gate_up_bias_2F, rows_, options_,
                           stream_);
  }

  const BlockChain& chain_;
  cudaStream_t stream_;
  int64_t rows_, hidden_;
  at::TensorOptions options_;
};

bool is_narrow_code_chain(const BlockChain& chain) {
  const int64_t rows = chain.residual_TH.size(0);
  const auto has = [&](const Matrix& weight_OI) {
    return fp8::has_narrow_product(rows, weight_OI.inputs());
  };
  return chain.next_norm_H.defined() && has(chain.output_HC) && has(chain.gate_up_2FH) &&
         has(chain.down_HF);
}

/// Of one or two rows: norms and codes are made by the products behind them.
Tensor narrow_code_chain(const BlockChain& chain, cudaStream_t stream) {
  const int64_t rows = chain.residual_TH.size(0), hidden = chain.residual_TH.size(1);
  const auto options = chain.residual_TH.options();
  // The product as partial sums, which the next one's prologue adds to the residual stream.
  const auto split = [&](const Matrix& weight_HI, const Tensor& bias_H, const Tensor& x_TI) {
    const int splits = fp8::few_product_splits(static_cast<int>(weight_HI.inputs()),
                                               static_cast<int>(weight_HI.outputs()));
    Tensor added_STH = at::empty({splits, rows, hidden}, options.dtype(at::kFloat));
    Product product = code_product_of(weight_HI, bias_H, rows, added_STH);
    product.epilogue = Product::Epilogue::kSplitK;
    fp8::narrow_product(product, pointer(x_TI), {}, stream);
    return added_STH;
  };
  const auto norm_of = [&](const Tensor& residual_TH, const Tensor& added_STH,
                           const Tensor& weight_H, const Tensor& sum_TH) {
    return fp8::Norm{.residual_TI = pointer(residual_TH),
                     .added_STI = added_STH.const_data_ptr<float>(),
                     .splits = static_cast<int>(added_STH.size(0)),
                     .weight_I = pointer(weight_H),
                     .sum_TI = sum_TH.data_ptr(),
                     .eps = static_cast<float>(chain.eps)};
  };
  const Tensor output_STH = split(chain.output_HC, chain.output_bias_H, chain.attended_TC);
  const Tensor sum_TH = at::empty_like(chain.residual_TH),
               gated_TF = at::empty({rows, chain.down_HF.inputs()}, options);
  Product gate_up = code_product_of(chain.gate_up_2FH, chain.gate_up_bias_2F, rows, gated_TF);
  gate_up.epilogue = Product::Epilogue::kSwiglu;
  fp8::narrow_product(gate_up, nullptr,
                      norm_of(chain.residual_TH, output_STH, chain.post_norm_H, sum_TH), stream);
  const Tensor down_STH = split(chain.down_HF, chain.down_bias_H, gated_TF);
  Tensor heads_TE = at::empty({rows, chain.next_qkv_EH.outputs()}, options);
  fp8::narrow_product(code_product_of(chain.next_qkv_EH, chain.next_qkv_bias_E, rows, heads_TE),
                      nullptr, norm_of(sum_TH, down_STH, chain.next_norm_H, chain.residual_TH),
                      stream);
  return heads_TE;
}

}  // namespace

bool CudaDevice::has_format(MatrixFormat format) const {
  return format == MatrixFormat::kPlain ||
         (format == MatrixFormat::kFp8Blocks && fp8::has_products());
}

bool CudaDevice::make_codes(MatrixFormat format, const Tensor& plain_OI, const Tensor& codes_OI,
                            const Tensor& scales_BC) const {
  const bool is_ours = format == MatrixFormat::kFp8Blocks && codes_OI.is_cuda() &&
                       plain_OI.scalar_type() != at::kDouble && plain_OI.is_contiguous() &&
                       codes_OI.is_contiguous() && scales_BC.is_contiguous() &&
                       is_aligned(plain_OI) && plain_OI.size(1) % 8 == 0;
  if (!is_ours) return false;
  fp8::quantise_blocks(number_of(plain_OI), pointer(plain_OI),
                       static_cast<uint8_t*>(codes_OI.data_ptr()), scales_BC.data_ptr<float>(),
                       plain_OI.size(0), plain_OI.size(1), stream_of(plain_OI));
  return true;
}

bool CudaDevice::multiplies_codes(const Tensor& x_TI, const Matrix& weight_OI) const {
  return has_code_products(weight_OI) && is_plain(x_TI) && x_TI.size(0) > 0 && fp8::has_products();
}

Tensor CudaDevice::code_product(const Tensor& x_TI, const Matrix& weight_OI, const Tensor& bias_O,
                                bool float_result) const {
  return code_linear(x_TI, weight_OI, bias_O, float_result, stream_of(x_TI));
}

bool CudaDevice::has_code_chain(const BlockChain& chain) const {
  if (chain.experts != nullptr || chain.ranks != nullptr || !fp8::has_products()) return false;
  for (const Matrix* matrix : {&chain.output_HC, &chain.gate_up_2FH, &chain.down_HF})
    if (!has_code_products(*matrix)) return false;
  if (chain.next_qkv_EH.defined() && !has_code_products(chain.next_qkv_EH)) return false;
  for (const Tensor* tensor :
       {&chain.attended_TC, &chain.residual_TH, &chain.output_bias_H, &chain.post_norm_H,
        &chain.gate_up_bias_2F, &chain.down_bias_H, &chain.next_norm_H, &chain.next_qkv_bias_E})
    if (!is_plain(*tensor)) return false;
  return chain.gate_up_2FH.outputs() % 16 == 0 && chain.residual_TH.size(1) <= fp8::kMostNormed;
}

Tensor CudaDevice::code_chain(const BlockChain& chain) const {
  const cudaStream_t stream = stream_of(chain.residual_TH);
  return is_narrow_code_chain(chain) ? narrow_code_chain(chain, stream)
                                     : CodeChain(chain, stream).run();
}

}  // namespace slime::kernels::cuda
