#pragma once

/// Table of names by which host sources of src/kernels/cuda compile as HIP. Its folder `include` stands for CUDA's headers.
///
/// The runtime's functions and types are the same with another prefix. The driver's calls for virtual memory take pointers
/// where CUDA's take numbers: those have small functions here.

#include <hip/hip_runtime_api.h>

#include <cstddef>

// Runtime: types and constants.
#define cudaDeviceProp hipDeviceProp_t
#define cudaError_t hipError_t
#define cudaEvent_t hipEvent_t
#define cudaIpcMemHandle_t hipIpcMemHandle_t
#define cudaStreamCaptureStatus hipStreamCaptureStatus
#define cudaStream_t hipStream_t
#define cudaErrorInsufficientDriver hipErrorInsufficientDriver
#define cudaHostAllocMapped hipHostMallocMapped
#define cudaHostRegisterDefault hipHostRegisterDefault
#define cudaIpcMemLazyEnablePeerAccess hipIpcMemLazyEnablePeerAccess
#define cudaMemcpyDefault hipMemcpyDefault
#define cudaMemcpyDeviceToDevice hipMemcpyDeviceToDevice
#define cudaStreamCaptureModeThreadLocal hipStreamCaptureModeThreadLocal
#define cudaStreamCaptureStatusNone hipStreamCaptureStatusNone
#define cudaStreamNonBlocking hipStreamNonBlocking
#define cudaSuccess hipSuccess

#define check_cuda check_hip

// Runtime: functions.
#define cudaDeviceSynchronize hipDeviceSynchronize
#define cudaDriverGetVersion hipDriverGetVersion
#define cudaEventCreate hipEventCreate
#define cudaEventDestroy hipEventDestroy
#define cudaEventElapsedTime hipEventElapsedTime
#define cudaEventRecord hipEventRecord
#define cudaEventSynchronize hipEventSynchronize
#define cudaFree hipFree
#define cudaFreeHost hipHostFree
#define cudaGetDevice hipGetDevice
#define cudaGetDeviceCount hipGetDeviceCount
#define cudaGetDeviceProperties hipGetDeviceProperties
#define cudaGetErrorString hipGetErrorString
#define cudaGetLastError hipGetLastError
#define cudaHostAlloc hipHostMalloc
#define cudaHostGetDevicePointer hipHostGetDevicePointer
#define cudaHostRegister hipHostRegister
#define cudaHostUnregister hipHostUnregister
#define cudaIpcCloseMemHandle hipIpcCloseMemHandle
#define cudaIpcGetMemHandle hipIpcGetMemHandle
#define cudaIpcOpenMemHandle hipIpcOpenMemHandle
#define cudaMalloc hipMalloc
#define cudaMemGetInfo hipMemGetInfo
#define cudaMemcpyAsync hipMemcpyAsync
#define cudaMemset hipMemset
#define cudaStreamCreateWithFlags hipStreamCreateWithFlags
#define cudaStreamDestroy hipStreamDestroy
#define cudaStreamIsCapturing hipStreamIsCapturing
#define cudaStreamSynchronize hipStreamSynchronize
#define cudaStreamWaitEvent hipStreamWaitEvent

// Driver: types and constants.
using CUdeviceptr = unsigned long long;
using CUmemAccessDesc = hipMemAccessDesc;
using CUmemAllocationProp = hipMemAllocationProp;
using CUmemGenericAllocationHandle = hipMemGenericAllocationHandle_t;
using CUmemLocation = hipMemLocation;
using CUresult = hipError_t;
#define CUDA_ERROR_OUT_OF_MEMORY hipErrorOutOfMemory
#define CUDA_SUCCESS hipSuccess
#define CU_MEM_ACCESS_FLAGS_PROT_READWRITE hipMemAccessFlagsProtReadWrite
#define CU_MEM_ALLOCATION_TYPE_PINNED hipMemAllocationTypePinned
#define CU_MEM_ALLOC_GRANULARITY_RECOMMENDED hipMemAllocationGranularityRecommended
#define CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR hipMemHandleTypePosixFileDescriptor
#define CU_MEM_LOCATION_TYPE_DEVICE hipMemLocationTypeDevice

// Driver: calls.
inline void* hip_pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

inline CUresult cuMemAddressReserve(CUdeviceptr* begin, std::size_t bytes, std::size_t alignment,
                                    CUdeviceptr wanted, unsigned long long flags) {
  void* reserved = nullptr;
  const CUresult status =
      hipMemAddressReserve(&reserved, bytes, alignment, hip_pointer(wanted), flags);
  *begin = reinterpret_cast<CUdeviceptr>(reserved);
  return status;
}
inline CUresult cuMemAddressFree(CUdeviceptr begin, std::size_t bytes) {
  return hipMemAddressFree(hip_pointer(begin), bytes);
}
inline CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                            const CUmemAllocationProp* properties, unsigned long long flags) {
  return hipMemCreate(handle, bytes, properties, flags);
}
inline CUresult cuMemRelease(CUmemGenericAllocationHandle handle) { return hipMemRelease(handle); }
inline CUresult cuMemMap(CUdeviceptr begin, std::size_t bytes, std::size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return hipMemMap(hip_pointer(begin), bytes, offset, handle, flags);
}
inline CUresult cuMemUnmap(CUdeviceptr begin, std::size_t bytes) {
  return hipMemUnmap(hip_pointer(begin), bytes);
}
inline CUresult cuMemSetAccess(CUdeviceptr begin, std::size_t bytes, const CUmemAccessDesc* access,
                               std::size_t count) {
  return hipMemSetAccess(hip_pointer(begin), bytes, access, count);
}
inline CUresult cuMemGetAllocationGranularity(std::size_t* granularity,
                                              const CUmemAllocationProp* properties,
                                              hipMemAllocationGranularity_flags option) {
  return hipMemGetAllocationGranularity(granularity, properties, option);
}
inline CUresult cuMemExportToShareableHandle(void* shared, CUmemGenericAllocationHandle handle,
                                             hipMemAllocationHandleType type,
                                             unsigned long long flags) {
  return hipMemExportToShareableHandle(shared, handle, type, flags);
}
