#include "kernels/linear_logprob.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "kernels/device.h"

namespace slime::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

int64_t chunk_rows(const Tensor& head_VH, const LinearLogProbOptions& options) {
  const int64_t row_bytes = head_VH.size(0) * 4;
  const int64_t bytes = head_VH.is_cuda() ? options.gpu_chunk_bytes : options.chunk_bytes;
  return std::max<int64_t>(1, bytes / row_bytes);
}

struct Statistics {
  Tensor logprob_R, entropy_R, logsumexp_R;
};

/// `kept`, unless null, receives the chunks' logits.
Statistics forward_chunks(const Tensor& hidden_RH, const Param& head, const Tensor& target_R,
                          const LinearLogProbOptions& options, std::vector<Tensor>* kept) {
  const int64_t rows = hidden_RH.size(0);
  const auto floats = hidden_RH.options().dtype(accumulator_of(hidden_RH));
  Statistics out{at::empty({rows}, floats), at::empty({rows}, floats), at::empty({rows}, floats)};
  const Device& device = kernels_for(hidden_RH);
  const int64_t step = chunk_rows(head.value, options);
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t size = std::min(step, rows - begin);
    const Tensor logits_RV = device.logits(hidden_RH.narrow(0, begin, size), head.value);
    Tensor logprob = out.logprob_R.narrow(0, begin, size);
    Tensor entropy = out.entropy_R.narrow(0, begin, size);
    Tensor logsumexp = out.logsumexp_R.narrow(0, begin, size);
    device.softmax_statistics(logits_RV, target_R.narrow(0, begin, size), options.temperature,
                              logprob, entropy, logsumexp);
    if (kept != nullptr) kept->push_back(logits_RV);
  }
  return out;
}

struct LinearLogProb : torch::autograd::Function<LinearLogProb> {
  static variable_list forward(AutogradContext* ctx, const Tensor& hidden_RH, const Param& head,
                               const Tensor& target_R, const LinearLogProbOptions& options) {
    const bool keeps = hidden_RH.size(0) * head.value.size(0) * 4 <= options.kept_bytes;
    std::vector<Tensor> kept;
    Statistics out = forward_chunks(hidden_RH, head, target_R, options, keeps ? &kept : nullptr);
    ctx->saved_data["kept"] = kept;
    ctx->save_for_backward({hidden_RH, out.entropy_R, out.logsumexp_R});
    ctx->saved_data["target"] = target_R;
    ctx->saved_data["head"] = head.value;
    ctx->saved_data["head_grad"] = head.grad;
    ctx->saved_data["temperature"] = options.temperature;
    ctx->saved_data["entropy_gradient"] = options.entropy_gradient;
    ctx->saved_data["chunk_bytes"] = options.chunk_bytes;
    if (!options.entropy_gradient) ctx->mark_non_differentiable({out.entropy_R});
    return {out.logprob_R, out.entropy_R};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &hidden_RH = saved[0], &entropy_R = saved[1], &logsumexp_R = saved[2];
    const Tensor target_R = ctx->saved_data["target"].toTensor();
    const Tensor head_VH = ctx->saved_data["head"].toTensor();
    const Tensor head_grad = ctx->saved_data["head_grad"].toTensor();
    const LinearLogProbOptions options{ctx->saved_data["temperature"].toDouble(),
                                       ctx->saved_data["entropy_gradient"].toBool(),
                                       ctx->saved_data["chunk_bytes"].toInt()};
    const Device& device = kernels_for(hidden_RH);
    std::vector<Tensor> kept = ctx->saved_data["kept"].toTensorVector();
    ctx->saved_data.erase("kept");  // consumed in place, chunk by chunk
    const Tensor dlogprob_R = grads[0].contiguous();
    const Tensor dentropy_R = options.entropy_gradient ? grads[1].contiguous() : Tensor();

    const int64_t rows = hidden_RH.size(0);
    const int64_t step = chunk_rows(head_VH, options);
    Tensor dhidden_RH = at::empty_like(hidden_RH);
    for (int64_t begin = 0; begin < rows; begin += step) {
      const int64_t size = std::min(step, rows - begin);
      const Tensor hidden = hidden_RH.narrow(0, begin, size);
      const Tensor dlogits_RV = device.softmax_gradient(
          kept.empty() ? device.logits(hidden, head_VH)
                       : std::exchange(kept[static_cast<size_t>(begin / step)], {}),
          target_R.narrow(0, begin, size), options.temperature, logsumexp_R.narrow(0, begin, size),
          entropy_R.narrow(0, begin, size), dlogprob_R.narrow(0, begin, size),
          dentropy_R.defined() ? dentropy_R.narrow(0, begin, size) : Tensor(),
          hidden.scalar_type());
      if (head_grad.defined()) device.add_linear_weight_grad_(head_grad, dlogits_RV, hidden);
      dhidden_RH.narrow(0, begin, size).copy_(device.linear_input_grad(dlogits_RV, head_VH));
    }
    return {dhidden_RH, Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

LogProbs linear_logprob(const Tensor& hidden_RH, const Param& head_VH, const Tensor& target_R,
                        const LinearLogProbOptions& options) {
  check(options.temperature > 0, "the temperature of log-probs is positive");
  check(hidden_RH.size(0) == target_R.size(0), "every scored row has a target");
  const Tensor hidden = hidden_RH.contiguous();
  if (at::GradMode::is_enabled() && hidden.requires_grad()) {
    const variable_list out = LinearLogProb::apply(hidden, head_VH, target_R, options);
    return {out[0], out[1]};
  }
  const Statistics out = forward_chunks(hidden, head_VH, target_R, options, nullptr);
  return {out.logprob_R, out.entropy_R};
}

}  // namespace slime::kernels
