#include "kernels/cpu/fast_device.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "kernels/cpu/processor.h"
#include "kernels/cpu/rows_avx2.h"
#include "kernels/cpu/sample_statistics.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/tree_attention_avx2.h"
#include "kernels/cpu/tree_attention_pages.h"
#include "kernels/cpu/tree_attention_tiles.h"

namespace slime::kernels::cpu {
namespace {

constexpr int64_t kRowGrain = 8;  // rows per chunk at least
/// Fixed, so that sums over rows do not depend on the number of threads.
constexpr int64_t kNumPartials = 16;

bool is_float(const Tensor& x) { return x.scalar_type() == at::kFloat; }

/// Calls fn with pointers' types for activations x and weights w; false when there is no fast form
/// for the pair.
template <typename Fn>
bool with_types(const Tensor& x, const Tensor& weight, const Fn& fn) {
  const auto w = weight.defined() ? weight.scalar_type() : x.scalar_type();
  if (is_float(x) && w == at::kFloat) return fn(float{}, float{}), true;
  if (is_float(x) && w == at::kBFloat16) return fn(float{}, at::BFloat16{}), true;
  if (is_float(x) && w == at::kHalf) return fn(float{}, at::Half{}), true;
  if (x.scalar_type() == at::kBFloat16 && w == at::kBFloat16)
    return fn(at::BFloat16{}, at::BFloat16{}), true;
  if (x.scalar_type() == at::kBFloat16 && w == at::kFloat) return fn(at::BFloat16{}, float{}), true;
  return false;
}

template <typename T>
T* data(const Tensor& x) {
  return x.defined() ? static_cast<T*>(x.data_ptr()) : nullptr;
}

/// Runs fn(begin, end, partial) over fixed slices of the rows, each adding to its own partial sum
/// [size] of floats; then the partial sums are added to `grad` in order. An undefined grad gives
/// null partials.
template <typename Fn>
void with_partial_sums(int64_t rows, int64_t size, const Tensor& grad, const Fn& fn) {
  const int64_t slices = std::min<int64_t>(kNumPartials, std::max<int64_t>(1, rows / kRowGrain));
  std::vector<float> partials(grad.defined() ? static_cast<size_t>(slices * size) : 0);
  parallel_chunks(slices, [&](int64_t slice) {
    float* partial = grad.defined() ? partials.data() + slice * size : nullptr;
    fn(slice * rows / slices, (slice + 1) * rows / slices, partial);
  });
  if (!grad.defined()) return;
  float* total = grad.data_ptr<float>();
  for (int64_t slice = 0; slice < slices; ++slice) {
    for (int64_t i = 0; i < size; ++i) total[i] += partials[static_cast<size_t>(slice * size + i)];
  }
}

/// Calls fn(token, head, which) for the rotated heads of rows [begin, end): which 0 is a query
/// head, 1 a key head; head counts from the start of the row.
template <typename Fn>
void for_each_head(int64_t begin, int64_t end, const RotaryShape& shape, const Fn& fn) {
  for (int64_t token = begin; token < end; ++token) {
    for (int64_t head = 0; head < shape.num_heads + shape.num_kv_heads; ++head) {
      fn(token, head, head >= shape.num_heads);
    }
  }
}

template <typename T>
void write_softmax_gradient(const Tensor& logits_RV, const Tensor& target_R, const LogitForm& form,
                            const Tensor& logsumexp_R, const Tensor& entropy_R,
                            const Tensor& dlogprob_R, const Tensor& dentropy_R,
                            const Tensor& out_RV) {
  const Tensor target = target_R.contiguous();
  const int64_t size = logits_RV.size(1);
  const auto inverse_cap = static_cast<float>(form.cap > 0 ? 1 / form.cap : 0);
  parallel_ranges(logits_RV.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      avx2::softmax_row_backward<T>(
          data<float>(logits_RV) + row * size, size, data<int64_t>(target)[row],
          static_cast<float>(1 / form.temperature), inverse_cap, data<float>(logsumexp_R)[row],
          data<float>(entropy_R)[row], data<float>(dlogprob_R)[row],
          dentropy_R.defined() ? data<float>(dentropy_R)[row] : 0.0F, data<T>(out_RV) + row * size);
    }
  });
}

}  // namespace

Tensor FastDevice::rms_norm(const Tensor& x_TH, const Tensor& weight_H, double eps) const {
  Tensor out_TH = at::empty_like(x_TH, at::MemoryFormat::Contiguous);
  const Tensor x = x_TH.contiguous();
  const int64_t size = x.size(1);
  const bool done = with_types(x, weight_H, [&](auto t, auto w) {
    using T = decltype(t);
    using W = decltype(w);
    parallel_ranges(x.size(0), kRowGrain, [&](int64_t begin, int64_t end) {
      avx2::rms_norm<T, W>(data<T>(x) + begin * size, nullptr, data<W>(weight_H),
                           data<T>(out_TH) + begin * size, end - begin, size,
                           static_cast<float>(eps));
    });
  });
  return done ? out_TH : ReferenceDevice::rms_norm(x_TH, weight_H, eps);
}

Tensor FastDevice::add_rms_norm_(Tensor x_TH, const Tensor& update_TH, const Tensor& weight_H,
                                 double eps) const {
  if (!x_TH.is_contiguous() || x_TH.scalar_type() != update_TH.scalar_type()) {
    return ReferenceDevice::add_rms_norm_(x_TH, update_TH, weight_H, eps);
  }
  Tensor out_TH = at::empty_like(x_TH);
  const Tensor update = update_TH.contiguous();
  const int64_t size = x_TH.size(1);
  const bool done = with_types(x_TH, weight_H, [&](auto t, auto w) {
    using T = decltype(t);
    using W = decltype(w);
    parallel_ranges(x_TH.size(0), kRowGrain, [&](int64_t begin, int64_t end) {
      avx2::rms_norm<T, W>(data<T>(x_TH) + begin * size, data<T>(update) + begin * size,
                           data<W>(weight_H), data<T>(out_TH) + begin * size, end - begin, size,
                           static_cast<float>(eps));
    });
  });
  return done ? out_TH : ReferenceDevice::add_rms_norm_(x_TH, update_TH, weight_H, eps);
}

Tensor FastDevice::sum(const Tensor& a, const Tensor& b) const {
  if (!a.is_contiguous() || !b.is_contiguous() || a.scalar_type() != b.scalar_type())
    return ReferenceDevice::sum(a, b);
  Tensor out = at::empty_like(a);
  const bool done = with_types(a, {}, [&](auto t, auto) {
    using T = decltype(t);
    parallel_ranges(a.numel(), int64_t{1} << 14, [&](int64_t begin, int64_t end) {
      avx2::sum<T>(data<T>(a) + begin, data<T>(b) + begin, data<T>(out) + begin, end - begin);
    });
  });
  return done ? out : ReferenceDevice::sum(a, b);
}

Tensor FastDevice::rms_norm_backward(const Tensor& dy_TH, const Tensor& x_TH,
                                     const Tensor& weight_H, double eps, Tensor grad_H) const {
  if (dy_TH.scalar_type() != x_TH.scalar_type()) {
    return ReferenceDevice::rms_norm_backward(dy_TH, x_TH, weight_H, eps, grad_H);
  }
  Tensor dx_TH = at::empty_like(dy_TH);
  const Tensor x = x_TH.contiguous();
  const int64_t size = x.size(1);
  const bool done = with_types(x, weight_H, [&](auto t, auto w) {
    using T = decltype(t);
    using W = decltype(w);
    with_partial_sums(x.size(0), size, grad_H, [&](int64_t begin, int64_t end, float* partial) {
      avx2::rms_norm_backward<T, W>(data<T>(dy_TH) + begin * size, data<T>(x) + begin * size,
                                    data<W>(weight_H), data<T>(dx_TH) + begin * size, partial,
                                    end - begin, size, static_cast<float>(eps));
    });
  });
  return done ? dx_TH : ReferenceDevice::rms_norm_backward(dy_TH, x_TH, weight_H, eps, grad_H);
}

Tensor FastDevice::swiglu(const Tensor& gate_up_T2F) const {
  const int64_t width = gate_up_T2F.size(1) / 2;
  Tensor out_TF = at::empty({gate_up_T2F.size(0), width}, gate_up_T2F.options());
  const bool done = with_types(gate_up_T2F, {}, [&](auto t, auto) {
    using T = decltype(t);
    parallel_ranges(out_TF.size(0), kRowGrain / 4, [&](int64_t begin, int64_t end) {
      avx2::swiglu<T>(data<T>(gate_up_T2F) + begin * 2 * width, data<T>(out_TF) + begin * width,
                      end - begin, width);
    });
  });
  return done ? out_TF : ReferenceDevice::swiglu(gate_up_T2F);
}

Tensor FastDevice::swiglu_backward(const Tensor& dy_TF, const Tensor& gate_up_T2F) const {
  const int64_t width = dy_TF.size(1);
  Tensor out_T2F = at::empty_like(gate_up_T2F);
  const bool done = with_types(gate_up_T2F, {}, [&](auto t, auto) {
    using T = decltype(t);
    parallel_ranges(dy_TF.size(0), kRowGrain / 4, [&](int64_t begin, int64_t end) {
      avx2::swiglu_backward<T>(data<T>(dy_TF) + begin * width,
                               data<T>(gate_up_T2F) + begin * 2 * width,
                               data<T>(out_T2F) + begin * 2 * width, end - begin, width);
    });
  });
  return done ? out_T2F : ReferenceDevice::swiglu_backward(dy_TF, gate_up_T2F);
}

Tensor FastDevice::norm_rotate(const Tensor& qkv_TE, const Tensor& positions_T,
                               const Tensor& q_norm_D, const Tensor& k_norm_D, const Tensor& cos_PR,
                               const Tensor& sin_PR, const RotaryShape& shape) const {
  const Tensor positions = positions_T.contiguous();
  Tensor out_TE = at::empty_like(qkv_TE, at::MemoryFormat::Contiguous);
  const Tensor in = qkv_TE.contiguous();
  const int64_t width = in.size(1), half = shape.head_dim / 2;
  const bool done = with_types(in, q_norm_D, [&](auto t, auto w) {
    using T = decltype(t);
    using W = decltype(w);
    parallel_ranges(in.size(0), kRowGrain, [&](int64_t begin, int64_t end) {
      std::copy(data<T>(in) + begin * width, data<T>(in) + end * width,
                data<T>(out_TE) + begin * width);
      for_each_head(begin, end, shape, [&](int64_t token, int64_t head, bool is_key) {
        const int64_t row = data<int64_t>(positions)[token] * half;
        avx2::norm_rotate_head<T, W>(data<T>(out_TE) + token * width + head * shape.head_dim,
                                     data<W>(is_key ? k_norm_D : q_norm_D),
                                     data<float>(cos_PR) + row, data<float>(sin_PR) + row,
                                     shape.head_dim, static_cast<float>(shape.norm_eps));
      });
    });
  });
  if (done) return out_TE;
  return ReferenceDevice::norm_rotate(qkv_TE, positions_T, q_norm_D, k_norm_D, cos_PR, sin_PR,
                                      shape);
}

Tensor FastDevice::norm_rotate_backward(const Tensor& dy_TE, const Tensor& qkv_TE,
                                        const Tensor& positions_T, const Tensor& q_norm_D,
                                        const Tensor& k_norm_D, const Tensor& cos_PR,
                                        const Tensor& sin_PR, const RotaryShape& shape,
                                        Tensor q_norm_grad_D, Tensor k_norm_grad_D) const {
  const Tensor positions = positions_T.contiguous();
  Tensor dx_TE = at::empty_like(dy_TE, at::MemoryFormat::Contiguous);
  const int64_t width = dy_TE.size(1), dim = shape.head_dim, half = dim / 2;
  // Query and key norms side by side in one vector of partial sums.
  const Tensor grads = q_norm_grad_D.defined() ? at::zeros({2 * dim}, at::kFloat) : Tensor();
  const bool done = with_types(dy_TE, q_norm_D, [&](auto t, auto w) {
    using T = decltype(t);
    using W = decltype(w);
    with_partial_sums(
        dy_TE.size(0), 2 * dim, grads, [&](int64_t begin, int64_t end, float* partial) {
          std::copy(data<T>(dy_TE) + begin * width, data<T>(dy_TE) + end * width,
                    data<T>(dx_TE) + begin * width);
          for_each_head(begin, end, shape, [&](int64_t token, int64_t head, bool is_key) {
            const int64_t row = data<int64_t>(positions)[token] * half,
                          offset = token * width + head * dim;
            avx2::norm_rotate_head_backward<T, W>(
                data<T>(dx_TE) + offset, qkv_TE.defined() ? data<T>(qkv_TE) + offset : nullptr,
                data<W>(is_key ? k_norm_D : q_norm_D),
                partial == nullptr ? nullptr : partial + (is_key ? dim : 0),
                data<float>(cos_PR) + row, data<float>(sin_PR) + row, dim,
                static_cast<float>(shape.norm_eps));
          });
        });
  });
  if (!done) {
    return ReferenceDevice::norm_rotate_backward(dy_TE, qkv_TE, positions_T, q_norm_D, k_norm_D,
                                                 cos_PR, sin_PR, shape, q_norm_grad_D,
                                                 k_norm_grad_D);
  }
  if (grads.defined()) {
    q_norm_grad_D.add_(grads.narrow(0, 0, dim));
    k_norm_grad_D.add_(grads.narrow(0, dim, dim));
  }
  return dx_TE;
}

Tensor FastDevice::latent_attention_in_pages(const Tensor& heads_TE, const Tensor& rotary_row_T,
                                             const Tensor& cos_PR, const Tensor& sin_PR,
                                             const std::vector<Segment>& segments,
                                             const RotaryShape& heads,
                                             const TreeAttentionShape& shape) const {
  check(heads_TE.scalar_type() == at::kFloat || heads_TE.scalar_type() == at::kBFloat16,
        "the engine computes in float32 or bfloat16");
  const Tensor in = heads_TE.contiguous();
  const Tensor y_TC = at::empty({in.size(0), heads.num_heads * heads.head_dim}, in.options());
  latent_attention_pages(in, rotary_row_T.contiguous(), cos_PR, sin_PR, segments, heads, shape,
                         y_TC);
  return y_TC;
}

Tensor FastDevice::tree_attention_in_pages(const Tensor& heads_TE,
                                           const std::vector<Segment>& segments,
                                           const RotaryShape& heads,
                                           const TreeAttentionShape& shape, const Tensor& sinks_N,
                                           Tensor& logsumexp_TN) const {
  check(heads_TE.scalar_type() == at::kFloat || heads_TE.scalar_type() == at::kBFloat16,
        "the engine computes in float32 or bfloat16");
  const Tensor in = heads_TE.contiguous();
  const int64_t tokens = in.size(0);
  const Tensor y_TC = at::empty({tokens, heads.num_heads * heads.head_dim}, in.options());
  logsumexp_TN = at::empty({tokens, heads.num_heads}, in.options().dtype(at::kFloat));
  tree_attention_pages(in, segments, heads, shape, sinks_N, y_TC, logsumexp_TN);
  return y_TC;
}

Tensor FastDevice::tree_attention(const Tensor& heads_TE, const std::vector<Segment>& segments,
                                  const RotaryShape& heads, const TreeAttentionShape& shape,
                                  Tensor& logsumexp_TN) const {
  if (heads_TE.scalar_type() == at::kDouble) {
    return ReferenceDevice::tree_attention(heads_TE, segments, heads, shape, logsumexp_TN);
  }
  const int64_t tokens = heads_TE.size(0), out_width = heads.num_heads * heads.head_dim;
  logsumexp_TN = at::empty({tokens, heads.num_heads}, heads_TE.options().dtype(at::kFloat));
  if (heads_TE.scalar_type() == at::kBFloat16 && has_tiles()) {
    const Tensor in = heads_TE.contiguous();
    Tensor y_TC = at::empty({tokens, out_width}, in.options());
    tree_attention_tiles(tile_ops(), attention_rows_avx512(), data<at::BFloat16>(in), segments,
                         heads, shape, data<at::BFloat16>(y_TC), data<float>(logsumexp_TN));
    return y_TC;
  }
  const Tensor in = heads_TE.to(at::kFloat).contiguous();
  Tensor y_TC = at::empty({tokens, out_width}, in.options());
  avx2::tree_attention(in.data_ptr<float>(), segments, heads, shape, y_TC.data_ptr<float>(),
                       logsumexp_TN.data_ptr<float>());
  return y_TC.to(heads_TE.scalar_type());
}

Tensor FastDevice::tree_attention_backward(const Tensor& dy_TC, const Tensor& y_TC,
                                           const Tensor& heads_TE, const Tensor& logsumexp_TN,
                                           const std::vector<Segment>& segments,
                                           const RotaryShape& heads,
                                           const TreeAttentionShape& shape) const {
  if (heads_TE.scalar_type() == at::kDouble) {
    return ReferenceDevice::tree_attention_backward(dy_TC, y_TC, heads_TE, logsumexp_TN, segments,
                                                    heads, shape);
  }
  if (heads_TE.scalar_type() == at::kBFloat16 && has_tiles()) {
    const Tensor in = heads_TE.contiguous();
    const Tensor wide_TE = at::empty(in.sizes(), in.options().dtype(at::kFloat));
    tree_attention_backward_tiles(tile_ops(), attention_rows_avx512(), data<at::BFloat16>(dy_TC),
                                  data<at::BFloat16>(y_TC), data<at::BFloat16>(in),
                                  data<float>(logsumexp_TN), segments, heads, shape,
                                  data<float>(wide_TE));
    Tensor dheads_TE = at::empty_like(in);
    parallel_ranges(in.numel(), int64_t{1} << 14, [&](int64_t begin, int64_t end) {
      avx2::narrow(data<float>(wide_TE) + begin, data<at::BFloat16>(dheads_TE) + begin,
                   end - begin);
    });
    return dheads_TE;
  }
  const Tensor in = heads_TE.to(at::kFloat).contiguous(), y = y_TC.to(at::kFloat),
               dy = dy_TC.to(at::kFloat);
  Tensor dheads_TE = at::zeros_like(in);
  avx2::tree_attention_backward(dy.data_ptr<float>(), y.data_ptr<float>(), in.data_ptr<float>(),
                                logsumexp_TN.data_ptr<float>(), segments, heads, shape,
                                dheads_TE.data_ptr<float>());
  return dheads_TE.to(heads_TE.scalar_type());
}

void FastDevice::softmax_statistics(const Tensor& logits_RV, const Tensor& target_R,
                                    double temperature, Tensor& logprob_R, Tensor& entropy_R,
                                    Tensor& logsumexp_R) const {
  if (!is_float(logits_RV) || !logits_RV.is_contiguous()) {
    return ReferenceDevice::softmax_statistics(logits_RV, target_R, temperature, logprob_R,
                                               entropy_R, logsumexp_R);
  }
  const Tensor target = target_R.contiguous();
  const int64_t size = logits_RV.size(1);
  parallel_ranges(logits_RV.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const TargetStatistics out =
          target_statistics({data<float>(logits_RV) + row * size, static_cast<std::size_t>(size)},
                            data<int64_t>(target)[row], temperature);
      data<float>(logprob_R)[row] = out.log_prob;
      data<float>(entropy_R)[row] = out.entropy;
      data<float>(logsumexp_R)[row] = out.logsumexp;
    }
  });
}

void FastDevice::softmax_backward_(Tensor logits_RV, const Tensor& target_R, double temperature,
                                   const Tensor& logsumexp_R, const Tensor& entropy_R,
                                   const Tensor& dlogprob_R, const Tensor& dentropy_R) const {
  if (!is_float(logits_RV) || !logits_RV.is_contiguous()) {
    return ReferenceDevice::softmax_backward_(logits_RV, target_R, temperature, logsumexp_R,
                                              entropy_R, dlogprob_R, dentropy_R);
  }
  write_softmax_gradient<float>(logits_RV, target_R, {temperature}, logsumexp_R, entropy_R,
                                dlogprob_R, dentropy_R, logits_RV);
}

Tensor FastDevice::softmax_gradient(const Tensor& logits_RV, const Tensor& target_R,
                                    const LogitForm& form, const Tensor& logsumexp_R,
                                    const Tensor& entropy_R, const Tensor& dlogprob_R,
                                    const Tensor& dentropy_R, at::ScalarType precision) const {
  const bool is_narrow = precision == at::kBFloat16;
  if (!is_float(logits_RV) || !logits_RV.is_contiguous() ||
      (!is_narrow && precision != at::kFloat)) {
    return ReferenceDevice::softmax_gradient(logits_RV, target_R, form, logsumexp_R, entropy_R,
                                             dlogprob_R, dentropy_R, precision);
  }
  if (!is_narrow) {
    write_softmax_gradient<float>(logits_RV, target_R, form, logsumexp_R, entropy_R, dlogprob_R,
                                  dentropy_R, logits_RV);
    return logits_RV;
  }
  Tensor out_RV = at::empty(logits_RV.sizes(), logits_RV.options().dtype(at::kBFloat16));
  write_softmax_gradient<at::BFloat16>(logits_RV, target_R, form, logsumexp_R, entropy_R,
                                       dlogprob_R, dentropy_R, out_RV);
  return out_RV;
}

void FastDevice::soft_cap_(Tensor x, double cap) const {
  if (!is_float(x) || !x.is_contiguous()) return ReferenceDevice::soft_cap_(x, cap);
  parallel_ranges(x.numel(), int64_t{1} << 14, [&](int64_t begin, int64_t end) {
    avx2::soft_cap_row(data<float>(x) + begin, end - begin, static_cast<float>(cap));
  });
}

}  // namespace slime::kernels::cpu
