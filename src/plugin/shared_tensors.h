#pragma once

/// Tensors in memory that the plug-in host beside the trainer has mapped: written here, read there, and
/// the other way round, without a copy. It is memory of the host, or of the GPU that this process trains
/// on: then users' functions see tensors of that GPU.
///
/// Space is given out from the front for one call after the other; what is given out in one call is
/// void when the next begins.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/tensor.h"
#include "kernels/gpu/memory.h"
#include "plugin/shared_memory.h"
#include "plugin/trainer_host.h"

namespace slime::plugin {

/// A tensor and the word by which a call names it.
struct SharedTensor {
  json::object word;
  Tensor tensor;  // a view of the memory
};

/// The part of a word that says what a tensor is and not where.
json::object describe(at::IntArrayRef shape, at::ScalarType dtype);

/// Of its own, on the host.
Tensor copy_on_host(const Tensor& tensor);

enum class SharedOn {
  kHost,
  kGpu,  // kernels::opened_gpu(), by the time of the first tensor
};

/// A piece of such memory, given out from the front.
class SharedBlock final {
 public:
  /// Throws std::system_error or c10::OutOfMemoryError when there is none.
  SharedBlock(TrainerHost& host, SharedOn place, int64_t bytes);

  int64_t number() const { return number_; }
  int64_t bytes() const;
  bool has_room(int64_t bytes) const { return used_ + bytes <= this->bytes(); }
  /// `bytes` of it, for a tensor of this shape.
  SharedTensor space(at::IntArrayRef shape, at::ScalarType dtype, int64_t bytes);
  void begin() { used_ = 0; }

 private:
  std::unique_ptr<SharedMemory> host_;
  std::unique_ptr<kernels::SharedGpuMemory> gpu_;
  int64_t number_ = 0;
  int64_t used_ = 0;
};

class SharedTensors final {
 public:
  /// `host` outlives the object.
  SharedTensors(TrainerHost& host, SharedOn place) : host_(host), place_(place) {}

  bool is_on_gpu() const { return place_ == SharedOn::kGpu; }

  /// A new call: what was given out before is void.
  void begin();
  /// Not initialised. Memory of the host is taken from the system as it is touched. Throws as
  /// SharedBlock.
  SharedTensor space(at::IntArrayRef shape, at::ScalarType dtype);
  /// With the numbers of `tensor`, which may be anywhere.
  SharedTensor put(const Tensor& tensor);

  /// Tensors of one shape in memory of their own, for what is large and needed in one call only.
  class Apart final {
   public:
    Apart(SharedTensors& tensors, int64_t count, at::IntArrayRef shape, at::ScalarType dtype);
    Apart(const Apart&) = delete;
    Apart& operator=(const Apart&) = delete;
    ~Apart();

    const SharedTensor& operator[](std::size_t i) const { return given_[i]; }
    /// The host gives its part back before this returns, and with the object the memory is free, but
    /// for what a function of the user's holds. Throws plugin::FunctionError.
    void release();

   private:
    TrainerHost& host_;
    SharedBlock block_;
    std::vector<SharedTensor> given_;
    bool is_released_ = false;
  };

 private:
  TrainerHost& host_;
  const SharedOn place_;
  std::vector<std::unique_ptr<SharedBlock>> blocks_;
};

}  // namespace slime::plugin
