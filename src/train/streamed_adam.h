#pragma once

/// AdamW with its state in host memory (Megatron: optimizer-cpu-offload). Pieces of it travel
/// through two slots on the GPU: while one piece is updated the next arrives and the one before
/// leaves, so a step takes what the slower direction of the bus needs for 12 bytes per weight.
///
/// Dimension: N elements of the flat buffers.

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <span>

#include "core/tensor.h"
#include "kernels/adamw.h"

namespace slime::train {

class StreamedAdam final {
 public:
  /// Elements of a piece.
  static constexpr int64_t kPiece = int64_t{1} << 26;

  /// State on the host, float32, its pages locked as long as this object lives. `master_N`:
  /// undefined where the weights, on `device`, are their own master.
  StreamedAdam(at::Device device, Tensor master_N, Tensor first_moment_N, Tensor second_moment_N);
  ~StreamedAdam();
  StreamedAdam(const StreamedAdam&) = delete;
  StreamedAdam& operator=(const StreamedAdam&) = delete;

  /// Does not wait for the GPU: the state is on the host again once the device is synchronized.
  void step(const Tensor& weights_N, const Tensor& grad_N,
            std::span<const kernels::AdamRange> ranges, const kernels::AdamStep& step);

  /// Until the state is on the host.
  void wait();

  /// Bytes of the slots on the GPU.
  static int64_t device_bytes(int64_t num_elements, bool has_master);

 private:
  struct Slot {
    explicit Slot(c10::DeviceType type) : arrived(type), computed(type), left(type) {}
    Tensor state[3];  // master (may be undefined), first and second moment
    c10::Event arrived, computed, left;
  };

  Tensor host_[3];
  c10::Stream in_, out_;
  Slot slots_[2];
};

}  // namespace slime::train
