#include "model/placement.h"

#include "core/error.h"
#include "kernels/gpu/gpu.h"

namespace slime::model {

Precision precision_on(const std::string& device, const std::string& dtype) {
  if (device == "cpu") return Precision::of(dtype);
  if (device != "cuda") throw ConfigError("device \"" + device + "\": cpu or cuda");
  kernels::open_gpu();
  return Precision::on_gpu(dtype);
}

}  // namespace slime::model
