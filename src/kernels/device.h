#pragma once

/// A processor that layers run on: raw tensor operations without gradients of their own.
///
/// The differentiable forms (kernels/linear.h, rms_norm.h, ...) are written once on top of it. The CPU side is
/// linked in; a GPU side is one more implementation, loaded at run time (docs/how/kernels.md).

#include "core/tensor.h"
#include "kernels/arithmetic.h"
#include "kernels/gradient_kernels.h"
#include "kernels/layer_kernels.h"

namespace slime::kernels {

class Device : public LayerKernels, public GradientKernels {
 public:
  /// Whether its products take matrices of this format; plain ones all do.
  virtual bool has_format(MatrixFormat format) const { return format == MatrixFormat::kPlain; }

  /// Whether matrices that it multiplies may have adapters beside them (kernels/adapters.h).
  virtual bool has_adapters() const { return false; }

  /// Codes and factors of one part's numbers (kernels/matrix_formats.h). False: it has no kernel for that.
  virtual bool make_codes(MatrixFormat /*format*/, const Tensor& /*plain_OI*/,
                          const Tensor& /*codes_OI*/, const Tensor& /*scales_BC*/) const {
    return false;
  }

  /// Products that this thread begins from now on leave `count` multiprocessors to what runs beside
  /// them; 0: none.
  virtual void leave_processors(int /*count*/) const {}

  /// Forward passes of this thread add in this order from now on. CPUs have one order for any rows, and ignore it.
  virtual void compute_in(Arithmetic /*arithmetic*/) const {}
  /// Of this thread.
  virtual Arithmetic arithmetic() const { return Arithmetic::kFast; }

  Tensor add_rms_norm_backward(const Tensor& dsum_TH, const Tensor& dy_TH, const Tensor& sum_TH,
                               const Tensor& weight_H, double eps, Tensor grad_H) const override;
};

/// The implementation for the device this tensor is on.
const Device& kernels_for(const Tensor& tensor);

/// Products that this thread begins while it lives leave some multiprocessors to messages: a large
/// product would else hold all of them until it ends, and messages wait for it.
class RoomForMessages final {
 public:
  RoomForMessages(const Device& device, int processors) : device_(device) {
    device_.leave_processors(processors);
  }
  ~RoomForMessages() { device_.leave_processors(0); }
  RoomForMessages(const RoomForMessages&) = delete;
  RoomForMessages& operator=(const RoomForMessages&) = delete;

 private:
  const Device& device_;
};

/// Forward passes of this thread add in this order while it lives.
class ArithmeticScope final {
 public:
  ArithmeticScope(const Device& device, Arithmetic arithmetic)
      : device_(device), before_(device.arithmetic()) {
    device_.compute_in(arithmetic);
  }
  ~ArithmeticScope() { device_.compute_in(before_); }
  ArithmeticScope(const ArithmeticScope&) = delete;
  ArithmeticScope& operator=(const ArithmeticScope&) = delete;

 private:
  const Device& device_;
  const Arithmetic before_;
};

/// Precision of gradients, statistics and logits: float64 for float64, float32 for everything else.
inline at::ScalarType accumulator_of(const Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace slime::kernels
