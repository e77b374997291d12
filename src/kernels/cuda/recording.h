#pragma once

/// Query for streams that are being recorded as a graph.

#include "kernels/cuda/launch.cuh"

namespace slime::kernels::cuda {

inline bool is_recording(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace slime::kernels::cuda
