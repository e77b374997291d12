#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "acceptance/kernel_twins.h"
#include "kernels/cpu/reference.h"
#include "model/save.h"

namespace slime::acceptance {
namespace {

using kernels::RotaryShape;
using kernels::Segment;

/// Probabilities are rounded once more.
double rounding_of_attention(at::ScalarType type) {
  return type == at::kFloat ? 1e-5 : type == at::kBFloat16 ? 1.6e-2 : 2e-3;
}

std::string sized(const char* name, at::ScalarType type, int64_t rows, int64_t width) {
  return fmt::format("{} {} {} x {}", name, model::dtype_word(type), rows, width);
}

void compare_norms(const Comparison& beside, at::ScalarType type, int64_t rows, int64_t hidden) {
  const kernels::Device& device = beside.side().device;
  const Tensor x = beside.numbers({rows, hidden}, type), weight = beside.numbers({hidden}, type);
  const std::string norm = sized("rms_norm", type, rows, hidden);
  beside.attempt(norm, [&] {
    beside.near(norm, device.rms_norm(beside.there(x), beside.there(weight), 1e-6),
                reference().rms_norm(wide(x), wide(weight), 1e-6), rounding(type));
  });
  const std::string added = sized("add_rms_norm", type, rows, hidden);
  beside.attempt(added, [&] {
    const Tensor update = beside.numbers({rows, hidden}, type);
    Tensor sum = beside.there(x).clone();
    const Tensor normed =
        device.add_rms_norm_(sum, beside.there(update), beside.there(weight), 1e-6);
    const Tensor expected = (x.to(at::kFloat) + update.to(at::kFloat)).to(type);
    beside.same(added + ", sum", sum, expected);
    beside.near(added, normed, reference().rms_norm(wide(expected), wide(weight), 1e-6),
                rounding(type));
  });
}

void compare_activation(const Comparison& beside, at::ScalarType type, int64_t rows,
                        int64_t width) {
  const std::string what = sized("swiglu", type, rows, width);
  beside.attempt(what, [&] {
    const Tensor x = beside.numbers({rows, 2 * width}, type);
    beside.near(what, beside.side().device.swiglu(beside.there(x)), reference().swiglu(wide(x)),
                rounding(type));
  });
}

void compare_embedding(const Comparison& beside, at::ScalarType type) {
  const std::string what = sized("embedding", type, 67, 136);
  beside.attempt(what, [&] {
    const Tensor table = beside.numbers({40, 136}, type);
    const Tensor ids = at::randint(0, 40, {67}, at::TensorOptions(at::kLong));
    beside.same(what, beside.side().device.embedding(beside.there(ids), beside.there(table), type),
                table.index_select(0, ids));
  });
}

void compare_products(const Comparison& beside, at::ScalarType type, int64_t rows, int64_t inputs,
                      int64_t outputs) {
  const kernels::Device& device = beside.side().device;
  const Tensor x = beside.numbers({rows, inputs}, type);
  const Tensor weight = beside.numbers({outputs, inputs}, type),
               bias = beside.numbers({outputs}, type);
  const std::string shape =
      fmt::format("{} {} x {} x {}", model::dtype_word(type), rows, inputs, outputs);
  const Tensor exact = reference().linear(wide(x), wide(weight), {});
  beside.attempt("linear " + shape, [&] {
    beside.near("linear " + shape,
                device.linear(beside.there(x), beside.there(weight), beside.there(bias)),
                exact + wide(bias), rounding(type));
  });
  beside.attempt("logits " + shape, [&] {
    beside.near("logits " + shape, device.logits(beside.there(x), beside.there(weight)), exact,
                1e-5);
  });
}

void compare_gated_product(const Comparison& beside, at::ScalarType type, int64_t rows,
                           int64_t inputs, int64_t width) {
  const std::string what =
      fmt::format("gated_linear {} {} x {} x {}", model::dtype_word(type), rows, inputs, width);
  beside.attempt(what, [&] {
    const Tensor x = beside.numbers({rows, inputs}, type);
    const Tensor weight =
        (beside.numbers({2 * width, inputs}, at::kFloat) / std::sqrt(static_cast<double>(inputs)))
            .to(type);
    const Tensor exact = reference().swiglu(reference().linear(wide(x), wide(weight), {}));
    // Gates and ups may be rounded before they are multiplied.
    beside.near(what, beside.side().device.gated_linear(beside.there(x), beside.there(weight), {}),
                exact, 3 * rounding(type));
  });
}

void compare_rotation(const Comparison& beside, at::ScalarType type, int64_t rows,
                      const RotaryShape& shape) {
  const int64_t dim = shape.head_dim, heads = shape.num_heads + 2 * shape.num_kv_heads;
  const std::string what = fmt::format("norm_rotate {} {} x {} heads of {}",
                                       model::dtype_word(type), rows, shape.num_heads, dim);
  beside.attempt(what, [&] {
    const Tensor x = beside.numbers({rows, heads * dim}, type);
    const Tensor angle = at::rand({100, dim / 2}) * 6,
                 positions = at::randint(100, {rows}, at::kLong);
    const Tensor q = beside.numbers({dim}, type), k = beside.numbers({dim}, type);
    const Tensor cosine = angle.cos(), sine = angle.sin();
    beside.near(what,
                beside.side().device.norm_rotate(beside.there(x), beside.there(positions),
                                                 beside.there(q), beside.there(k),
                                                 beside.there(cosine), beside.there(sine), shape),
                reference().norm_rotate(wide(x), positions, wide(q), wide(k), wide(cosine),
                                        wide(sine), shape),
                2 * rounding(type));
  });
}

void compare_attention(const Comparison& beside, at::ScalarType type, const RotaryShape& heads,
                       const std::vector<Segment>& segments, int64_t window) {
  const kernels::Device& device = beside.side().device;
  const int64_t rows = segments.back().end, out = heads.num_heads * heads.head_dim;
  const std::string what = fmt::format("tree_attention {} {} rows, {} of {} heads of {}, window {}",
                                       model::dtype_word(type), rows, heads.num_kv_heads,
                                       heads.num_heads, heads.head_dim, window);
  beside.attempt(what, [&] {
    const Tensor x =
        (beside.numbers({rows, out + 2 * heads.num_kv_heads * heads.head_dim}, at::kFloat) * 0.7)
            .to(type);
    const Tensor dy = beside.numbers({rows, out}, type);
    const kernels::TreeAttentionShape shape{0.11, window};
    Tensor lse, exact_lse;
    const Tensor y = device.tree_attention(beside.there(x), segments, heads, shape, lse);
    const Tensor exact = reference().tree_attention(wide(x), segments, heads, shape, exact_lse);
    beside.near(what, y, exact, rounding_of_attention(type));
    beside.near(what + ", gradient",
                device.tree_attention_backward(beside.there(dy), y, beside.there(x), lse, segments,
                                               heads, shape),
                reference().tree_attention_backward(wide(dy), exact, wide(x), exact_lse, segments,
                                                    heads, shape),
                2 * rounding_of_attention(type));
  });
}

}  // namespace

void compare_layers(const Side& side, const Tell& tell) {
  const at::NoGradGuard no_grad;
  const Comparison beside("kernels", side, tell);
  const std::vector<Segment> tree = {{0, 70, -1}, {70, 75, 0}, {75, 126, 0}, {126, 127, 0}};
  for (const at::ScalarType type : side.types) {
    for (const int64_t rows : {1, 127, 129}) {
      for (const int64_t hidden : {72, 2560}) compare_norms(beside, type, rows, hidden);
      compare_activation(beside, type, rows, 136);
    }
    compare_embedding(beside, type);
    // As many as decode has, and as prompts have.
    for (const int64_t rows : {1, 8, 33, 200}) {
      compare_products(beside, type, rows, 320, 352);
      compare_gated_product(beside, type, rows, 320, 136);
    }
    for (const RotaryShape& shape : {RotaryShape{5, 1, 64, 1e-6}, RotaryShape{8, 2, 128, 1e-6}}) {
      compare_rotation(beside, type, 77, shape);
      for (const int64_t window : {0, 33}) {
        compare_attention(beside, type, shape, {{0, 129, -1}}, window);
        compare_attention(beside, type, shape, tree, window);
      }
    }
    if (side.is_quick) continue;
    for (const int64_t rows : {1, 32, 1000}) {
      compare_norms(beside, type, rows, 8192);
      compare_activation(beside, type, rows, 9728);
      compare_products(beside, type, rows, 2560, 6144);
      compare_gated_product(beside, type, rows, 2560, 9728);
    }
    compare_rotation(beside, type, 1201, {32, 8, 128, 1e-6});
    compare_attention(beside, type, {32, 8, 128, 0}, {{0, 1025, -1}}, 0);
  }
}

}  // namespace slime::acceptance
