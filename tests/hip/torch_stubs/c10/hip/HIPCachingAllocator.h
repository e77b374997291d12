#pragma once

/// Stub of LibTorch's ROCm header of this name: spelling and types of what src/kernels/hip/torch_side.cpp uses.

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>

#include <utility>

namespace c10::cuda::CUDACachingAllocator {

void emptyCache();
void* getBaseAllocation(void* pointer, size_t* size);
c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device);
void resetPeakStats(c10::DeviceIndex device);

}  // namespace c10::cuda::CUDACachingAllocator
