#pragma once

/// Tensors in memory that the plug-in host beside the trainer has mapped: written here, read there, and
/// the other way round, without a copy.
///
/// Space is given out from the front for one call after the other; what is given out in one call is
/// void when the next begins.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/tensor.h"
#include "plugin/trainer_host.h"

namespace slime::loop {

/// A tensor and the word by which a call names it.
struct SharedTensor {
  json::object word;
  Tensor tensor;  // a view of the memory, on the CPU
};

class SharedTensors final {
 public:
  /// `host` outlives the object.
  explicit SharedTensors(plugin::TrainerHost& host) : host_(host) {}

  /// A new call: what was given out before is void.
  void begin();
  /// Not initialised. Memory is taken from the system as it is touched. Throws std::system_error.
  SharedTensor space(at::IntArrayRef shape, at::ScalarType dtype);
  /// With the numbers of `tensor`, which may be anywhere.
  SharedTensor put(const Tensor& tensor);

 private:
  struct Block {
    std::unique_ptr<plugin::SharedMemory> memory;
    int64_t number = 0;
    int64_t used = 0;
  };

  plugin::TrainerHost& host_;
  std::vector<Block> blocks_;
};

}  // namespace slime::loop
