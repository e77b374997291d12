#include "acceptance/comparison.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "core/error.h"

namespace slime::acceptance {

Comparison::Comparison(std::string section, const Side& side, Tell tell)
    : section_(std::move(section)), side_(side), tell_(std::move(tell)) {
  at::manual_seed(1);
}

Tensor Comparison::numbers(at::IntArrayRef sizes, at::ScalarType type) const {
  return at::randn(sizes, at::TensorOptions(at::kFloat)).to(type);
}

Tensor Comparison::there(const Tensor& x) const { return x.defined() ? x.to(side_.place) : x; }

void Comparison::near(const std::string& what, const Tensor& a, const Tensor& exact,
                      double most) const {
  if (a.sizes() != exact.sizes()) {
    tell_({.section = section_,
           .what = what,
           .kind = Figure::Kind::kProblem,
           .text = "the result has another shape"});
    return;
  }
  const Tensor wide_a = wide(a), wide_exact = wide(exact);
  const auto size = wide_exact.norm().item<double>();
  const auto distance = (wide_a - wide_exact).norm().item<double>();
  tell_({.section = section_,
         .what = what,
         .value = size > 0 ? distance / size : distance,
         .most = most});
}

void Comparison::none(const std::string& what, int64_t count) const {
  tell_({.section = section_, .what = what, .value = static_cast<double>(count), .most = 0});
}

void Comparison::same(const std::string& what, const Tensor& a, const Tensor& b) const {
  check(a.scalar_type() == b.scalar_type(), "bits are compared in one precision");
  const auto bytes = [](const Tensor& x) {
    return x.to(at::kCPU).contiguous().view(at::kByte).reshape({-1});
  };
  const Tensor of_a = bytes(a), of_b = bytes(b);
  none(what + ", bytes that differ", of_a.numel() == of_b.numel()
                                         ? of_a.ne(of_b).count_nonzero().item<int64_t>()
                                         : std::max(of_a.numel(), of_b.numel()));
}

void Comparison::attempt(const std::string& what, const std::function<void()>& body) const {
  try {
    body();
  } catch (const std::exception& error) {
    // The first line: LibTorch's errors go on with a trace, which has paths.
    const std::string text = error.what();
    tell_({.section = section_,
           .what = what,
           .kind = Figure::Kind::kProblem,
           .text = text.substr(0, text.find('\n'))});
  }
}

void Comparison::told(const std::string& what, const std::string& text) const {
  tell_({.section = section_, .what = what, .kind = Figure::Kind::kTold, .text = text});
}

Tensor wide(const Tensor& x) { return x.defined() ? x.to(at::kCPU).to(at::kDouble) : x; }

double rounding(at::ScalarType type) {
  return type == at::kFloat ? 5e-6 : type == at::kBFloat16 ? 4e-3 : 5e-4;
}

const kernels::cpu::ReferenceDevice& reference() {
  static const kernels::cpu::ReferenceDevice device;
  return device;
}

}  // namespace slime::acceptance
