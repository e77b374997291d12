#include "comm/side_stream.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace slime::comm {

void order(const c10::Stream& earlier, const c10::Stream& later) {
  c10::Event event(earlier.device_type());
  event.record(earlier);
  event.block(later);
}

void SideStream::run(const Tensor& x, const std::function<void()>& work) {
  if (x.is_cpu()) return work();
  const c10::impl::VirtualGuardImpl streams(x.device().type());
  if (!stream_) stream_ = streams.getStreamFromGlobalPool(x.device(), /*isHighPriority=*/true);
  order(streams.getStream(x.device()), *stream_);
  is_apart_ = true;
  const c10::StreamGuard guard(*stream_);
  work();
}

void SideStream::join() {
  if (!is_apart_) return;
  is_apart_ = false;
  const c10::impl::VirtualGuardImpl streams(stream_->device_type());
  order(*stream_, streams.getStream(stream_->device()));
}

}  // namespace slime::comm
