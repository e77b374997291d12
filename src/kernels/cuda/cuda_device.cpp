#include "kernels/cuda/cuda_device.h"

#include <ATen/ATen.h>

#include "core/error.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/products/gated_product.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/torch_side.h"

namespace slime::kernels::cuda {
namespace {

/// Ours take rows of whole 16-byte packs, activations and weights in one precision.
bool is_ours(const Tensor& x, const Tensor& weight) {
  return has_number(x) && x.scalar_type() == weight.scalar_type() && x.is_contiguous() &&
         x.size(-1) * x.element_size() % 16 == 0;
}

/// Norms that multiply with one plus a weight have that in float32.
bool is_normed_by_ours(const Tensor& x, const Tensor& weight) {
  return is_ours(x, x) && weight.is_contiguous() &&
         (weight.scalar_type() == x.scalar_type() || weight.scalar_type() == at::kFloat);
}

thread_local int processors_left = 0;  // by products: see leave_processors()
thread_local Arithmetic order_of_sums = Arithmetic::kFast;

}  // namespace

const void* pointer(const Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

bool is_aligned(const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
}

bool is_plain(const Tensor& tensor) {
  return !tensor.defined() ||
         (tensor.scalar_type() == at::kBFloat16 && tensor.is_contiguous() && is_aligned(tensor));
}

bool has_number(const Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

Number number_of(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return Number::kFloat32;
    case at::kBFloat16:
      return Number::kBFloat16;
    case at::kHalf:
      return Number::kFloat16;
    default:
      throw BugError("CUDA kernels compute in float32, bfloat16 or float16");
  }
}

bool are_float_norms(const Tensor& rows, const Tensor& q_norm_D) {
  return q_norm_D.defined() && q_norm_D.scalar_type() != rows.scalar_type();
}

bool are_norms_ours(const Tensor& rows, const Tensor& q_norm_D, const Tensor& k_norm_D) {
  if (q_norm_D.defined() != k_norm_D.defined()) return false;
  return !q_norm_D.defined() ||
         (q_norm_D.scalar_type() == k_norm_D.scalar_type() && q_norm_D.is_contiguous() &&
          k_norm_D.is_contiguous() &&
          (q_norm_D.scalar_type() == rows.scalar_type() || q_norm_D.scalar_type() == at::kFloat));
}

cudaStream_t stream_of(const Tensor& tensor) { return current_stream(tensor.get_device()); }

Tensor CudaDevice::embedding(const Tensor& ids_T, const Tensor& table_VH,
                             at::ScalarType activations) const {
  if (table_VH.scalar_type() != activations || !is_ours(table_VH, table_VH))
    return ReferenceDevice::embedding(ids_T, table_VH, activations);
  const int64_t rows = ids_T.size(0), hidden = table_VH.size(1);
  Tensor out_TH = at::empty({rows, hidden}, table_VH.options());
  cuda::embedding(number_of(table_VH), ids_T.const_data_ptr<int64_t>(), pointer(table_VH),
                  out_TH.data_ptr(), rows, hidden, stream_of(table_VH));
  return out_TH;
}

Tensor CudaDevice::product(const Tensor& x_TI, const Matrix& weight_OI, const Tensor& bias_O,
                           bool float_result) const {
  Tensor y_TO = at::empty({x_TI.size(0), weight_OI.outputs()},
                          float_result ? x_TI.options().dtype(at::kFloat) : x_TI.options());
  product_into(y_TO, x_TI, weight_OI, bias_O);
  return y_TO;
}

LinearCall CudaDevice::product_call(const Tensor& y_TO, const Tensor& x_TI, const Matrix& weight_OI,
                                    const Tensor& bias_O) {
  LinearCall call;
  call.number = number_of(x_TI);
  call.float_result = y_TO.scalar_type() != x_TI.scalar_type();
  call.rows = x_TI.size(0);
  call.inputs = x_TI.size(1);
  call.outputs = weight_OI.outputs();
  call.processors_left = processors_left;
  call.x_TI = pointer(x_TI);
  call.weight_OI = pointer(weight_OI);
  call.bias_O = pointer(bias_O);
  call.y_TO = y_TO.data_ptr();
  return call;
}

/// Of one call alone: trainer and engines have streams of their own and compute at the same time.
Tensor CudaDevice::product_workspace(const Tensor& x_TI) {
  return at::empty({static_cast<int64_t>(Linear::kWorkspaceBytes)},
                   x_TI.options().dtype(at::kByte));
}

void CudaDevice::product_into(const Tensor& y_TO, const Tensor& x_TI, const Matrix& weight_OI,
                              const Tensor& bias_O) const {
  const LinearCall call = product_call(y_TO, x_TI, weight_OI, bias_O);
  if (arithmetic() == Arithmetic::kTraining) return invariant_linear_.run(call, stream_of(x_TI));
  const Tensor workspace = product_workspace(x_TI);
  linear_.run(call, workspace.data_ptr(), stream_of(x_TI));
}

std::vector<ProductCandidate> CudaDevice::product_candidates(const Tensor& x_TI,
                                                             const Tensor& weight_OI,
                                                             bool float_result) const {
  check(is_ours(x_TI, weight_OI), "candidates are for contiguous factors of one precision");
  const Tensor workspace = product_workspace(x_TI),
               y_TO = at::empty({x_TI.size(0), weight_OI.size(0)},
                                float_result ? x_TI.options().dtype(at::kFloat) : x_TI.options());
  return linear_.candidates(product_call(y_TO, x_TI, weight_OI, {}), workspace.data_ptr(),
                            stream_of(x_TI));
}

Tensor CudaDevice::linear(const Tensor& x_TI, const Matrix& weight_OI, const Tensor& bias_O) const {
  if (multiplies_codes(x_TI, weight_OI) && is_plain(bias_O))
    return code_product(x_TI, weight_OI, bias_O, false);
  if (!weight_OI.is_plain() || !is_ours(x_TI, weight_OI.values))
    return ReferenceDevice::linear(x_TI, weight_OI, bias_O);
  return product(x_TI, weight_OI, bias_O, false);
}

void CudaDevice::linear_into(const Tensor& y_TO, const Tensor& x_TI, const Matrix& weight_OI,
                             const Tensor& bias_O) const {
  if (!weight_OI.is_plain() || !is_ours(x_TI, weight_OI.values) || !y_TO.is_contiguous())
    return ReferenceDevice::linear_into(y_TO, x_TI, weight_OI, bias_O);
  product_into(y_TO, x_TI, weight_OI, bias_O);
}

void CudaDevice::leave_processors(int count) const {
  processors_left = count;
  leave_processors_of_library(count);
}

void CudaDevice::compute_in(Arithmetic arithmetic) const { order_of_sums = arithmetic; }

Arithmetic CudaDevice::arithmetic() const { return order_of_sums; }

Tensor CudaDevice::logits(const Tensor& x_TI, const Matrix& weight_OI) const {
  if (multiplies_codes(x_TI, weight_OI)) return code_product(x_TI, weight_OI, {}, true);
  if (!weight_OI.is_plain() || !is_ours(x_TI, weight_OI.values))
    return ReferenceDevice::logits(x_TI, weight_OI);
  return product(x_TI, weight_OI, {}, true);
}

Tensor CudaDevice::rms_norm(const Tensor& x_TH, const Tensor& weight_H, double eps) const {
  if (!is_normed_by_ours(x_TH, weight_H)) return ReferenceDevice::rms_norm(x_TH, weight_H, eps);
  Tensor out_TH = at::empty_like(x_TH);
  cuda::add_rms_norm(number_of(x_TH), pointer(x_TH), nullptr, pointer(weight_H),
                     number_of(weight_H), nullptr, out_TH.data_ptr(), x_TH.size(0), x_TH.size(1),
                     static_cast<float>(eps), stream_of(x_TH));
  return out_TH;
}

Tensor CudaDevice::add_rms_norm_(Tensor x_TH, const Tensor& update_TH, const Tensor& weight_H,
                                 double eps) const {
  if (!is_normed_by_ours(x_TH, weight_H) || !is_ours(update_TH, x_TH))
    return ReferenceDevice::add_rms_norm_(x_TH, update_TH, weight_H, eps);
  Tensor out_TH = at::empty_like(x_TH);
  cuda::add_rms_norm(number_of(x_TH), pointer(x_TH), pointer(update_TH), pointer(weight_H),
                     number_of(weight_H), x_TH.data_ptr(), out_TH.data_ptr(), x_TH.size(0),
                     x_TH.size(1), static_cast<float>(eps), stream_of(x_TH));
  return out_TH;
}

Tensor CudaDevice::add_rms_norm(const Tensor& x_TH, const Tensor& update_TH, const Tensor& weight_H,
                                double eps, Tensor& sum_TH) const {
  if (!is_normed_by_ours(x_TH, weight_H) || !is_ours(update_TH, x_TH))
    return ReferenceDevice::add_rms_norm(x_TH, update_TH, weight_H, eps, sum_TH);
  sum_TH = at::empty_like(x_TH);
  Tensor out_TH = at::empty_like(x_TH);
  cuda::add_rms_norm(number_of(x_TH), pointer(x_TH), pointer(update_TH), pointer(weight_H),
                     number_of(weight_H), sum_TH.data_ptr(), out_TH.data_ptr(), x_TH.size(0),
                     x_TH.size(1), static_cast<float>(eps), stream_of(x_TH));
  return out_TH;
}

Tensor CudaDevice::swiglu(const Tensor& gate_up_T2F) const {
  const int64_t width = gate_up_T2F.size(1) / 2;
  if (!is_ours(gate_up_T2F, gate_up_T2F) || width * gate_up_T2F.element_size() % 16 != 0)
    return ReferenceDevice::swiglu(gate_up_T2F);
  Tensor out_TF = at::empty({gate_up_T2F.size(0), width}, gate_up_T2F.options());
  cuda::swiglu(number_of(gate_up_T2F), pointer(gate_up_T2F), out_TF.data_ptr(), gate_up_T2F.size(0),
               width, stream_of(gate_up_T2F));
  return out_TF;
}

GatedProduct CudaDevice::gated_call(const Tensor& x_TI, const Matrix& weight_2FI,
                                    const Tensor& bias_2F) {
  GatedProduct call;
  call.x_TI = pointer(x_TI);
  call.weight_2FI = pointer(weight_2FI);
  call.bias_2F = pointer(bias_2F);
  call.rows = x_TI.size(0);
  call.inputs = x_TI.size(1);
  call.units = weight_2FI.outputs() / 2;
  call.processors_left = processors_left;
  return call;
}

bool CudaDevice::has_gated(const Tensor& x_TI, const Matrix& weight_2FI, const Tensor& bias_2F) {
  return is_plain(x_TI) && is_plain(weight_2FI) && is_plain(bias_2F) &&
         has_gated_product(Number::kBFloat16, x_TI.size(0), x_TI.size(1), weight_2FI.outputs() / 2);
}

Tensor CudaDevice::gated_linear(const Tensor& x_TI, const Matrix& weight_2FI,
                                const Tensor& bias_2F) const {
  // Training has the product and the activation, whose order of sums may be another one.
  if (arithmetic() == Arithmetic::kTraining || !has_gated(x_TI, weight_2FI, bias_2F))
    return ReferenceDevice::gated_linear(x_TI, weight_2FI, bias_2F);
  GatedProduct call = gated_call(x_TI, weight_2FI, bias_2F);
  Tensor y_TF = at::empty({call.rows, call.units}, x_TI.options());
  call.y_TF = y_TF.data_ptr();
  gated_product(call, stream_of(x_TI));
  return y_TF;
}

Tensor CudaDevice::norm_rotate(const Tensor& qkv_TE, const Tensor& positions_T,
                               const Tensor& q_norm_D, const Tensor& k_norm_D, const Tensor& cos_PR,
                               const Tensor& sin_PR, const RotaryShape& shape) const {
  if (!has_number(qkv_TE) || !qkv_TE.is_contiguous() || shape.head_dim > 256 ||
      !are_norms_ours(qkv_TE, q_norm_D, k_norm_D))
    return ReferenceDevice::norm_rotate(qkv_TE, positions_T, q_norm_D, k_norm_D, cos_PR, sin_PR,
                                        shape);
  Tensor out_TE = at::empty_like(qkv_TE);
  RotateCall call;
  call.number = number_of(qkv_TE);
  call.qkv_TE = pointer(qkv_TE);
  call.out_TE = out_TE.data_ptr();
  call.positions_T = positions_T.const_data_ptr<int64_t>();
  call.q_norm_D = pointer(q_norm_D);
  call.k_norm_D = pointer(k_norm_D);
  call.has_float_norms = are_float_norms(qkv_TE, q_norm_D);
  call.cos_PR = cos_PR.const_data_ptr<float>();
  call.sin_PR = sin_PR.const_data_ptr<float>();
  call.rows = qkv_TE.size(0);
  call.num_heads = static_cast<int>(shape.num_heads);
  call.num_kv_heads = static_cast<int>(shape.num_kv_heads);
  call.head_dim = static_cast<int>(shape.head_dim);
  call.eps = static_cast<float>(shape.norm_eps);
  cuda::norm_rotate(call, stream_of(qkv_TE));
  return out_TE;
}

}  // namespace slime::kernels::cuda
