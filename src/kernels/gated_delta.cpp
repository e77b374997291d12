#include "kernels/gated_delta.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/thread_pool.h"
#include "kernels/pick_rows.h"
#include "kernels/trace.h"
#include "kernels/unit_lower.h"

namespace slime::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Numbers of one tensor of some heads over all chunks: heads are computed in groups as large as this.
/// Larger on a GPU, where a launch costs more than memory.
constexpr int64_t kGroupNumbers = int64_t{1} << 22, kGpuGroupNumbers = int64_t{1} << 27;

/// Key heads [begin, end) and the value heads that share them.
struct Heads {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t count() const { return end - begin; }
};

/// Rows scaled to length one; `inverse` is what they were multiplied by.
struct UnitRows {
  Tensor unit, inverse;
};
UnitRows unit_rows(const Tensor& x) {
  const Tensor inverse = (x.square().sum(-1, /*keepdim=*/true) + kDeltaEps).rsqrt();
  return {x * inverse, inverse};
}

Tensor unit_rows_backward(const Tensor& dy, const UnitRows& rows) {
  return (dy - rows.unit * (rows.unit * dy).sum(-1, true)) * rows.inverse;
}

/// Tokens [T, heads, X] to chunks [M, heads, C, X], zeros where there is no token.
Tensor to_chunks(const Tensor& x_TGX, const DeltaPlan& plan) {
  const Tensor padded = at::constant_pad_nd(x_TGX, {0, 0, 0, 0, 0, 1});
  return padded.index_select(0, plan.row_MC)
      .view({plan.num_chunks(), kDeltaChunk, x_TGX.size(1), x_TGX.size(2)})
      .transpose(1, 2)
      .contiguous();
}

/// The way back.
Tensor to_tokens(const Tensor& x_MGCX, const DeltaPlan& plan) {
  return x_MGCX.transpose(1, 2)
      .reshape({-1, x_MGCX.size(1), x_MGCX.size(3)})
      .index_select(0, plan.place_T);
}

Tensor turned(const Tensor& x) { return x.transpose(-1, -2); }

/// (1 + lower) x = b in the place of b, or (is_turned) (1 + lower)^T x = b; row by row.
template <typename T>
void solve_chunk(const T* lower_CC, T* x_CX, int64_t width, bool is_turned) {
  for (int64_t step = 1; step < kDeltaChunk; ++step) {
    const int64_t i = is_turned ? kDeltaChunk - 1 - step : step;
    T* row_X = x_CX + i * width;
    for (int64_t k = 0; k < step; ++k) {
      const int64_t j = is_turned ? kDeltaChunk - 1 - k : k;
      const T factor = is_turned ? lower_CC[j * kDeltaChunk + i] : lower_CC[i * kDeltaChunk + j];
      const T* other_X = x_CX + j * width;
#pragma omp simd
      for (int64_t x = 0; x < width; ++x) row_X[x] -= factor * other_X[x];
    }
  }
}

/// The same of all chunks and heads. LibTorch's calls BLAS for each small matrix, which wakes its threads.
Tensor solved(const Tensor& lower_MGCC, const Tensor& b_MGCX, bool is_turned) {
  if (!b_MGCX.is_cpu()) {
    const Tensor inverse = inverse_of_unit_lower(lower_MGCC.reshape({-1, kDeltaChunk, kDeltaChunk}))
                               .view(lower_MGCC.sizes());
    return at::matmul(is_turned ? turned(inverse) : inverse, b_MGCX);
  }
  const Tensor lower = lower_MGCC.contiguous(), x = b_MGCX.contiguous();
  const int64_t width = x.size(3);
  const auto solve = [&](auto zero) {
    using T = decltype(zero);
    const T* lower_data = lower.const_data_ptr<T>();
    T* x_data = x.data_ptr<T>();
    cpu::parallel_chunks(x.size(0) * x.size(1), [&](int64_t matrix) {
      solve_chunk(lower_data + matrix * kDeltaChunk * kDeltaChunk,
                  x_data + matrix * kDeltaChunk * width, width, is_turned);
    });
  };
  x.scalar_type() == at::kDouble ? solve(double{}) : solve(float{});
  return x;
}

/// All of some heads that does not depend on states. G: value heads of the group.
struct Inside {
  UnitRows query, key;  // of tokens [T, key heads, D]
  Tensor q, k;          // [M, G, C, D]; q divided by the root of D
  Tensor v;             // [M, G, C, V]
  Tensor rate;          // [M, G, C, 1]
  Tensor since;         // [M, G, C, 1]: what is left of the chunk's first state after this token
  Tensor until;         // [M, G, C, 1]: what is left of what this token wrote at the chunk's end
  Tensor whole;         // [M, G, 1, 1]
  Tensor ratio;         // [M, G, C, C]: decay from token j to token i >= j, zeros above
  Tensor lower;         // [M, G, C, C]: what token i sees of what token j < i wrote
  Tensor seen;          // [M, G, C, C]: what the query of i reads of what j <= i wrote
  Tensor solved_v;      // [M, G, C, V]: what tokens write, without the state
  Tensor solved_k;      // [M, G, C, D]: and what they take out of the state

  Tensor rated_k() const { return k * rate; }
  Tensor query_since() const { return q * since; }
  Tensor key_until() const { return k * until; }
};

Inside inside(const DeltaTokens& in, const DeltaShape& shape, const DeltaPlan& plan,
              const Heads& heads) {
  const int64_t share = shape.value_heads / shape.key_heads, tokens = in.mixed_TE.size(0),
                count = heads.count();
  const auto part = [&](int64_t begin, int64_t size) {
    return in.mixed_TE.narrow(1, begin + heads.begin * size, count * size)
        .view({tokens, count, size});
  };
  Inside out;
  out.query = unit_rows(part(0, shape.key_dim));
  out.key = unit_rows(part(shape.keys(), shape.key_dim));
  const auto shared = [&](const Tensor& x) {
    const Tensor chunks = to_chunks(x, plan);
    return share == 1 ? chunks : chunks.repeat_interleave(share, 1);
  };
  out.q = shared(out.query.unit / std::sqrt(static_cast<double>(shape.key_dim)));
  out.k = shared(out.key.unit);
  out.v = to_chunks(in.mixed_TE
                        .narrow(1, 2 * shape.keys() + heads.begin * share * shape.value_dim,
                                count * share * shape.value_dim)
                        .view({tokens, count * share, shape.value_dim}),
                    plan);
  const auto of_heads = [&](const Tensor& x_TN) {
    return to_chunks(x_TN.narrow(1, heads.begin * share, count * share).unsqueeze(2), plan);
  };
  out.rate = of_heads(in.rate_TN);
  const Tensor sum = of_heads(in.decay_TN).cumsum(2), last = sum.narrow(2, kDeltaChunk - 1, 1);
  out.since = sum.exp();
  out.until = (last - sum).exp();
  out.whole = last.exp();
  // Above the diagonal the difference is positive and may not fit into a float: cleared before exp.
  out.ratio = (sum - turned(sum)).tril().exp().tril();
  const Tensor rated_k = out.rated_k();
  out.lower = (at::matmul(rated_k, turned(out.k)) * out.ratio).tril(-1);
  out.seen = at::matmul(out.q, turned(out.k)) * out.ratio;
  const Tensor both = solved(out.lower, at::cat({out.v * out.rate, rated_k * out.since}, 3), false);
  out.solved_v = both.narrow(3, 0, shape.value_dim);
  out.solved_k = both.narrow(3, shape.value_dim, shape.key_dim);
  return out;
}

/// Chunks of one level.
Tensor level_of(const Tensor& x_M, const DeltaPlan& plan, int64_t level) {
  const int64_t begin = plan.level_starts[static_cast<size_t>(level)];
  return x_M.narrow(0, begin, plan.level_starts[static_cast<size_t>(level) + 1] - begin);
}

/// States on the way, and what tokens write into them; for the backward.
struct Passed {
  Tensor start;    // [M, G, D, V]
  Tensor written;  // [M, G, C, V]
};

/// What tokens read [M, G, C, V]. `end_SNDV` receives the states of segments at their ends, where it is
/// defined.
Tensor pass(const Inside& in, const DeltaPlan& plan, const Tensor& start_RGDV, Tensor end_SGDV,
            Passed* kept) {
  Tensor out = at::empty_like(in.v);
  const Tensor query_since = in.query_since(), key_until = in.key_until();
  std::vector<Tensor> starts, writings;
  Tensor ends = start_RGDV;
  for (int64_t level = 0; level < plan.num_levels(); ++level) {
    const auto here = [&](const Tensor& x) { return level_of(x, plan, level); };
    const Tensor state = ends.index_select(0, here(plan.before_M));
    const Tensor written = here(in.solved_v) - at::matmul(here(in.solved_k), state);
    here(out).copy_(at::matmul(here(query_since), state) + at::matmul(here(in.seen), written));
    ends = state * here(in.whole) + at::matmul(turned(here(key_until)), written);
    if (kept != nullptr) {
      starts.push_back(state);
      writings.push_back(written);
    }
    if (!end_SGDV.defined()) continue;
    const int64_t first = plan.level_starts[static_cast<size_t>(level)];
    for (size_t s = 0; s < plan.last_chunks.size(); ++s) {
      const int64_t chunk = plan.last_chunks[s] - first;
      if (chunk >= 0 && chunk < ends.size(0)) end_SGDV[static_cast<int64_t>(s)].copy_(ends[chunk]);
    }
  }
  if (kept != nullptr) *kept = {at::cat(starts), at::cat(writings)};
  return out;
}

/// Groups of key heads whose tensors are not larger than that.
std::vector<Heads> groups_of(const DeltaShape& shape, const DeltaPlan& plan) {
  const int64_t most = plan.row_MC.is_cpu() ? kGroupNumbers : kGpuGroupNumbers;
  const int64_t share = shape.value_heads / shape.key_heads;
  const int64_t of_head =
      plan.num_chunks() * kDeltaChunk * share * (shape.key_dim + shape.value_dim + kDeltaChunk);
  const int64_t step = std::clamp<int64_t>(most / of_head, 1, shape.key_heads);
  std::vector<Heads> groups;
  for (int64_t begin = 0; begin < shape.key_heads; begin += step)
    groups.push_back({begin, std::min(begin + step, shape.key_heads)});
  return groups;
}

DeltaRun run(const Tensor& start_RNDV, const DeltaTokens& in, const DeltaShape& shape,
             const DeltaPlan& plan, bool wants_states) {
  const int64_t share = shape.value_heads / shape.key_heads;
  const auto of_state = [&](int64_t count, int64_t heads) {
    return std::vector<int64_t>{count, heads, shape.key_dim, shape.value_dim};
  };
  DeltaRun out;
  out.out_TC = at::empty({in.mixed_TE.size(0), shape.values()}, in.mixed_TE.options());
  if (wants_states) {
    out.state_SNDV =
        at::empty(of_state(static_cast<int64_t>(plan.last_chunks.size()), shape.value_heads),
                  in.mixed_TE.options());
  }
  for (const Heads& heads : groups_of(shape, plan)) {
    const int64_t begin = heads.begin * share, count = heads.count() * share;
    const Tensor start = start_RNDV.defined()
                             ? start_RNDV.narrow(1, begin, count)
                             : at::zeros(of_state(plan.num_roots, count), in.mixed_TE.options());
    const Tensor read =
        pass(inside(in, shape, plan, heads), plan, start,
             wants_states ? out.state_SNDV.narrow(1, begin, count) : Tensor(), nullptr);
    out.out_TC.narrow(1, begin * shape.value_dim, count * shape.value_dim)
        .copy_(to_tokens(read, plan).view({in.mixed_TE.size(0), -1}));
  }
  return out;
}

/// Gradients of what a layer's rule read.
struct DeltaGradients {
  Tensor mixed_TE, decay_TN, rate_TN;
};

/// Of states and of what chunks exchange with them, level by level, last first.
struct PassedBack {
  Tensor written;      // [M, G, C, V]
  Tensor query_since;  // [M, G, C, D]
  Tensor key_until;    // [M, G, C, D]
  Tensor solved_k;     // [M, G, C, D]
  Tensor whole;        // [M, G, 1, 1]
};
PassedBack pass_back(const Inside& in, const Passed& kept, const Tensor& dout,
                     const DeltaPlan& plan) {
  PassedBack out{at::empty_like(in.v), at::empty_like(in.q), at::empty_like(in.q),
                 at::empty_like(in.q), at::empty_like(in.whole)};
  const Tensor query_since = in.query_since(), key_until = in.key_until();
  Tensor dend;  // of the chunks of this level
  for (int64_t level = plan.num_levels(); level-- > 0;) {
    const auto here = [&](const Tensor& x) { return level_of(x, plan, level); };
    const Tensor state = here(kept.start), dread = here(dout);
    if (!dend.defined()) dend = at::zeros_like(state);
    const Tensor dwritten =
        at::matmul(turned(here(in.seen)), dread) + at::matmul(here(key_until), dend);
    here(out.written).copy_(dwritten);
    here(out.query_since).copy_(at::matmul(dread, turned(state)));
    here(out.key_until).copy_(at::matmul(here(kept.written), turned(dend)));
    here(out.solved_k).copy_(at::matmul(dwritten, turned(state)).neg_());
    here(out.whole).copy_((state * dend).sum({2, 3}, /*keepdim=*/true));
    if (level == 0) break;
    const Tensor dstart = dend * here(in.whole) + at::matmul(turned(here(query_since)), dread) -
                          at::matmul(turned(here(in.solved_k)), dwritten);
    dend = sum_rows(dstart, here(plan.before_M), level_of(plan.before_M, plan, level - 1).size(0));
  }
  return out;
}

/// Adds a group's gradients to `out`.
void backward_of(const Heads& heads, const DeltaTokens& tokens, const DeltaShape& shape,
                 const DeltaPlan& plan, const Tensor& dout_TC, const DeltaGradients& out) {
  const int64_t share = shape.value_heads / shape.key_heads, count = heads.count(),
                num_tokens = tokens.mixed_TE.size(0), first = heads.begin * share;
  const Inside in = inside(tokens, shape, plan, heads);
  Passed kept;
  pass(in, plan,
       at::zeros({plan.num_roots, count * share, shape.key_dim, shape.value_dim}, in.v.options()),
       {}, &kept);
  const Tensor dout =
      to_chunks(dout_TC.narrow(1, first * shape.value_dim, count * share * shape.value_dim)
                    .view({num_tokens, count * share, shape.value_dim}),
                plan);
  const PassedBack back = pass_back(in, kept, dout, plan);

  const Tensor dseen = at::matmul(dout, turned(kept.written));
  const Tensor dright = solved(in.lower, at::cat({back.written, back.solved_k}, 3), true);
  const Tensor dlower =
      at::matmul(dright, turned(at::cat({in.solved_v, in.solved_k}, 3))).neg_().tril(-1);
  const Tensor dright_v = dright.narrow(3, 0, shape.value_dim),
               dright_k = dright.narrow(3, shape.value_dim, shape.key_dim);

  const Tensor rated_k = in.rated_k(), dseen_ratio = dseen * in.ratio,
               dlower_ratio = dlower * in.ratio;
  const Tensor drated_k = at::matmul(dlower_ratio, in.k) + dright_k * in.since;
  const Tensor dq = at::matmul(dseen_ratio, in.k) + back.query_since * in.since;
  const Tensor dk = at::matmul(turned(dlower_ratio), rated_k) +
                    at::matmul(turned(dseen_ratio), in.q) + back.key_until * in.until +
                    drated_k * in.rate;
  const Tensor drate = (dright_v * in.v).sum(3, true) + (drated_k * in.k).sum(3, true);

  // Of the sums of decays, which all factors are powers of.
  const Tensor dpairs = dlower * in.lower + dseen * in.seen;
  const Tensor duntil = (back.key_until * in.k).sum(3, true) * in.until;
  Tensor dsum = dpairs.sum(3, true) - turned(dpairs.sum(2, true)) +
                (dright_k * rated_k + back.query_since * in.q).sum(3, true) * in.since - duntil;
  dsum.narrow(2, kDeltaChunk - 1, 1).add_(back.whole * in.whole + duntil.sum(2, /*keepdim=*/true));
  const Tensor ddecay = dsum.flip(2).cumsum(2).flip(2);

  const auto add = [&](const Tensor& target, int64_t begin, const Tensor& x_TGX) {
    const Tensor flat = x_TGX.reshape({num_tokens, -1});
    target.narrow(1, begin, flat.size(1)).copy_(flat);
  };
  const auto of_key_heads = [&](const Tensor& dx) {
    const Tensor x_TGD = to_tokens(dx, plan);
    return share == 1 ? x_TGD : x_TGD.view({num_tokens, count, share, -1}).sum(2);
  };
  add(out.mixed_TE, heads.begin * shape.key_dim,
      unit_rows_backward(of_key_heads(dq) / std::sqrt(static_cast<double>(shape.key_dim)),
                         in.query));
  add(out.mixed_TE, shape.keys() + heads.begin * shape.key_dim,
      unit_rows_backward(of_key_heads(dk), in.key));
  add(out.mixed_TE, 2 * shape.keys() + first * shape.value_dim,
      to_tokens(dright_v * in.rate, plan));
  add(out.decay_TN, first, to_tokens(ddecay, plan));
  add(out.rate_TN, first, to_tokens(drate, plan));
}

struct GatedDelta : torch::autograd::Function<GatedDelta> {
  static Tensor forward(AutogradContext* ctx, const Tensor& mixed_TE, const Tensor& decay_TN,
                        const Tensor& rate_TN, const DeltaShape& shape, const DeltaPlan& plan) {
    ctx->save_for_backward({mixed_TE, decay_TN, rate_TN});
    ctx->saved_data["shape"] =
        std::vector<int64_t>{shape.key_heads, shape.value_heads, shape.key_dim, shape.value_dim};
    ctx->saved_data["rows"] = plan.row_MC;
    ctx->saved_data["places"] = plan.place_T;
    ctx->saved_data["before"] = plan.before_M;
    ctx->saved_data["level_starts"] = plan.level_starts;
    ctx->saved_data["num_roots"] = plan.num_roots;
    return run({}, {mixed_TE, decay_TN, rate_TN}, shape, plan, false).out_TC;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto sizes = ctx->saved_data["shape"].toIntVector();
    const DeltaShape shape{sizes[0], sizes[1], sizes[2], sizes[3]};
    DeltaPlan plan;
    plan.row_MC = ctx->saved_data["rows"].toTensor();
    plan.place_T = ctx->saved_data["places"].toTensor();
    plan.before_M = ctx->saved_data["before"].toTensor();
    plan.level_starts = ctx->saved_data["level_starts"].toIntVector();
    plan.num_roots = ctx->saved_data["num_roots"].toInt();
    const DeltaTokens tokens{saved[0], saved[1], saved[2]};
    const DeltaGradients out{at::empty_like(saved[0]), at::empty_like(saved[1]),
                             at::empty_like(saved[2])};
    for (const Heads& heads : groups_of(shape, plan))
      backward_of(heads, tokens, shape, plan, grads[0].contiguous(), out);
    return {out.mixed_TE, out.decay_TN, out.rate_TN, Tensor(), Tensor()};
  }
};

}  // namespace

Tensor gated_delta(const DeltaTokens& in, const DeltaShape& shape, const DeltaPlan& plan) {
  const TraceRange range("gated_delta");
  if (at::GradMode::is_enabled() && in.mixed_TE.requires_grad())
    return GatedDelta::apply(in.mixed_TE, in.decay_TN, in.rate_TN, shape, plan);
  return run({}, in, shape, plan, false).out_TC;
}

DeltaRun gated_delta_from(const Tensor& start_RNDV, const DeltaTokens& in, const DeltaShape& shape,
                          const DeltaPlan& plan) {
  const TraceRange range("gated_delta");
  return run(start_RNDV, in, shape, plan, true);
}

}  // namespace slime::kernels
