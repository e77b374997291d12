#pragma once

/// Lock on the pages of a tensor on the host, as long as this object lives, so that copies between it and
/// the GPU run at the link's rate.

#include <utility>

#include "kernels/gpu/gpu.h"

namespace slime::kernels {

class LockedPages final {
 public:
  /// The GPU of this process is open. Throws std::runtime_error.
  explicit LockedPages(Tensor host) : host_(std::move(host)) { opened_gpu().lock_pages(host_); }
  ~LockedPages() { opened_gpu().unlock_pages(host_); }
  LockedPages(const LockedPages&) = delete;
  LockedPages& operator=(const LockedPages&) = delete;

 private:
  const Tensor host_;
};

}  // namespace slime::kernels
