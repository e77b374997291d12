#include "train/streamed_adam.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <vector>

#include "kernels/gpu/gpu.h"

namespace slime::train {
namespace {

c10::Stream new_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, false);
}

/// The intersections of ranges with [begin, end), relative to begin.
std::vector<kernels::AdamRange> clipped(std::span<const kernels::AdamRange> ranges, int64_t begin,
                                        int64_t end) {
  std::vector<kernels::AdamRange> inside;
  for (const kernels::AdamRange& range : ranges) {
    const int64_t from = std::max(range.begin, begin), to = std::min(range.end, end);
    if (from < to) inside.push_back({from - begin, to - begin, range.decays});
  }
  return inside;
}

}  // namespace

int64_t StreamedAdam::device_bytes(int64_t num_elements, bool has_master) {
  return 2 * (has_master ? 3 : 2) * 4 * std::min(kPiece, num_elements);
}

StreamedAdam::StreamedAdam(at::Device device, Tensor master_N, Tensor first_moment_N,
                           Tensor second_moment_N)
    : host_{std::move(master_N), std::move(first_moment_N), std::move(second_moment_N)},
      in_(new_stream(device)),
      out_(new_stream(device)),
      slots_{Slot(device.type()), Slot(device.type())} {
  const auto options = at::TensorOptions(at::kFloat).device(device);
  for (int i = 0; i < 3; ++i) {
    if (!host_[i].defined()) continue;
    kernels::opened_gpu().lock_pages(host_[i]);
    for (Slot& slot : slots_)
      slot.state[i] = at::empty({std::min(kPiece, host_[i].size(0))}, options);
  }
}

void StreamedAdam::wait() {
  in_.synchronize();
  out_.synchronize();
}

StreamedAdam::~StreamedAdam() {
  wait();
  for (const Tensor& host : host_)
    if (host.defined()) kernels::opened_gpu().unlock_pages(host);
}

void StreamedAdam::step(const Tensor& weights_N, const Tensor& grad_N,
                        std::span<const kernels::AdamRange> ranges, const kernels::AdamStep& step) {
  const c10::Stream compute =
      c10::impl::VirtualGuardImpl(weights_N.device().type()).getStream(weights_N.device());
  const int64_t count = weights_N.size(0);
  int buffer = 0;  // double buffering
  for (int64_t begin = 0; begin < count; begin += kPiece, buffer = 1 - buffer) {
    const int64_t size = std::min(kPiece, count - begin);
    Slot& slot = slots_[buffer];
    {
      const c10::StreamGuard guard(in_);
      slot.left.block(in_);  // the slot's previous chunk is on the host
      for (int i = 0; i < 3; ++i) {
        if (host_[i].defined())
          slot.state[i].narrow(0, 0, size).copy_(host_[i].narrow(0, begin, size), true);
      }
      slot.arrived.record(in_);
    }
    slot.arrived.block(compute);
    const Tensor weights = weights_N.narrow(0, begin, size);
    const Tensor master = host_[0].defined() ? slot.state[0].narrow(0, 0, size) : weights;
    kernels::adamw_(weights, master, slot.state[1].narrow(0, 0, size),
                    slot.state[2].narrow(0, 0, size), grad_N.narrow(0, begin, size),
                    clipped(ranges, begin, begin + size), step);
    slot.computed.record(compute);
    const c10::StreamGuard guard(out_);
    slot.computed.block(out_);
    for (int i = 0; i < 3; ++i) {
      if (host_[i].defined())
        host_[i].narrow(0, begin, size).copy_(slot.state[i].narrow(0, 0, size), true);
    }
    slot.left.record(out_);
  }
}

}  // namespace slime::train
