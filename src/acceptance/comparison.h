#pragma once

/// Results of a device beside those of the reference in float64, as figures of one section.

#include <functional>
#include <string>
#include <vector>

#include "acceptance/figure.h"
#include "core/tensor.h"
#include "kernels/cpu/reference.h"
#include "kernels/device.h"

namespace slime::acceptance {

/// The device that is looked at.
struct Side {
  const kernels::Device& device;
  at::Device place;
  std::vector<at::ScalarType> types;  // of activations
  bool is_quick = false;              // small shapes alone
};

class Comparison final {
 public:
  Comparison(std::string section, const Side& side, Tell tell);

  const Side& side() const { return side_; }
  /// Normal numbers on the host, the same in each process.
  Tensor numbers(at::IntArrayRef sizes, at::ScalarType type) const;
  /// On the device; an undefined tensor stays what it is.
  Tensor there(const Tensor& x) const;

  /// Tells |a - exact| / |exact|. With sizes that differ it is a problem.
  void near(const std::string& what, const Tensor& a, const Tensor& exact, double most) const;
  /// Tells a number of mistakes, of which there may be none.
  void none(const std::string& what, int64_t count) const;
  /// Tells how many bytes differ; none may.
  void same(const std::string& what, const Tensor& a, const Tensor& b) const;
  /// What `body` throws is a problem of the figure `what`, and the next comparison goes on.
  void attempt(const std::string& what, const std::function<void()>& body) const;
  void told(const std::string& what, const std::string& text) const;

 private:
  const std::string section_;
  const Side& side_;
  const Tell tell_;
};

/// Float64 on the host; an undefined tensor stays what it is.
Tensor wide(const Tensor& x);
/// One rounding of a result of this precision, and float32 sums inside.
double rounding(at::ScalarType type);
/// The plain operations, which take numbers of wide().
const kernels::cpu::ReferenceDevice& reference();

}  // namespace slime::acceptance
