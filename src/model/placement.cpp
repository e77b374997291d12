#include "model/placement.h"

#include "core/error.h"
#include "kernels/gpu/gpu.h"

namespace slime::model {

Precision precision_on(const std::string& device, const std::string& dtype) {
  if (device == "cpu") return Precision::of(dtype);
  if (device != "cuda" && device != "hip")
    throw ConfigError("device \"" + device + "\": cpu, cuda or hip");
  kernels::choose_platform(device);
  kernels::open_gpu();
  return Precision::on_gpu(dtype);
}

}  // namespace slime::model
