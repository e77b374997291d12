/// Comparisons of kernels: those of this processor are right, and planted mistakes are found.

#include "acceptance/kernel_twins.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/reference.h"

namespace slime::acceptance {
namespace {

using Compare = void (*)(const Side&, const Tell&);

std::vector<Figure> figures_of(Compare compare, const kernels::Device& device) {
  std::vector<Figure> figures;
  const Side side{device, at::kCPU, {at::kFloat}, /*is_quick=*/true};
  compare(side, [&](const Figure& figure) { figures.push_back(figure); });
  return figures;
}

std::set<std::string> kernels_that_differ(Compare compare, const kernels::Device& device) {
  std::set<std::string> names;
  for (const Figure& figure : figures_of(compare, device))
    if (differs(figure)) names.insert(figure.what.substr(0, figure.what.find(' ')));
  return names;
}

TEST(KernelTwins, OfThisProcessorDoNotDiffer) {
  for (const Compare compare : {compare_layers, compare_gradients, compare_optimizer}) {
    const std::vector<Figure> figures = figures_of(compare, kernels::cpu::device());
    EXPECT_FALSE(figures.empty());
    for (const Figure& figure : figures)
      EXPECT_FALSE(differs(figure)) << figure.what << ": " << figure.value << " " << figure.text;
  }
}

/// One number of a result is what a kernel gives that forgot a row.
struct ForgetsARow final : kernels::cpu::ReferenceDevice {
  Tensor rms_norm(const Tensor& x_TH, const Tensor& weight_H, double eps) const override {
    Tensor y_TH = ReferenceDevice::rms_norm(x_TH, weight_H, eps);
    y_TH[-1].zero_();
    return y_TH;
  }
};

TEST(KernelTwins, FindARowThatWasForgotten) {
  // The sum's norm is by the same kernel.
  EXPECT_EQ(kernels_that_differ(compare_layers, ForgetsARow()),
            (std::set<std::string>{"add_rms_norm", "rms_norm"}));
}

/// The window is one key too wide.
struct SeesAKeyTooMany final : kernels::cpu::ReferenceDevice {
  Tensor tree_attention(const Tensor& heads_TE, const std::vector<kernels::Segment>& segments,
                        const kernels::RotaryShape& heads, const kernels::TreeAttentionShape& shape,
                        Tensor& logsumexp_TN) const override {
    kernels::TreeAttentionShape wider = shape;
    if (wider.window > 0) ++wider.window;
    return ReferenceDevice::tree_attention(heads_TE, segments, heads, wider, logsumexp_TN);
  }
};

TEST(KernelTwins, FindAWindowThatIsOneKeyTooWide) {
  EXPECT_EQ(kernels_that_differ(compare_layers, SeesAKeyTooMany()),
            std::set<std::string>{"tree_attention"});
}

/// The gradient of the weight replaces what was there.
struct ReplacesTheGradient final : kernels::cpu::ReferenceDevice {
  void add_linear_weight_grad_(Tensor grad_OI, const Tensor& dy_TO,
                               const Tensor& x_TI) const override {
    grad_OI.zero_();
    ReferenceDevice::add_linear_weight_grad_(grad_OI, dy_TO, x_TI);
  }
};

TEST(KernelTwins, FindAGradientThatIsNotAdded) {
  EXPECT_EQ(kernels_that_differ(compare_gradients, ReplacesTheGradient()),
            std::set<std::string>{"add_linear_weight_grad_"});
}

struct Throws final : kernels::cpu::ReferenceDevice {
  Tensor swiglu(const Tensor&) const override {
    throw std::runtime_error("hipErrorLaunchFailure\nframe #0: /opt/secret");
  }
};

TEST(KernelTwins, GoOnBehindAKernelThatFails) {
  const std::vector<Figure> figures = figures_of(compare_layers, Throws());
  const auto failed = std::ranges::find(figures, Figure::Kind::kProblem, &Figure::kind);
  ASSERT_NE(failed, figures.end());
  EXPECT_EQ(failed->text, "hipErrorLaunchFailure");
  EXPECT_FALSE(differs(figures.back()));
}

}  // namespace
}  // namespace slime::acceptance
