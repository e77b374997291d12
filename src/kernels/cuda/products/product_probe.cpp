#include "kernels/cuda/products/product_probe.h"

#include <ATen/ATen.h>

#include "core/divide_up.h"

namespace slime::kernels::cuda {
namespace {

constexpr uint32_t kSeedOfRows = 1, kSeedOfWeights = 2, kSeedOfBias = 3;
constexpr int64_t kAlignment = 512;

int64_t size_of(Number number) { return number == Number::kFloat32 ? 4 : 2; }

}  // namespace

ProductProbe::ProductProbe(const LinearCall& like, cudaStream_t stream)
    : call_(like),
      result_bytes_(like.rows * like.outputs * (like.float_result ? 4 : size_of(like.number))) {
  const int64_t size = size_of(like.number), rows = like.rows, inputs = like.inputs,
                outputs = like.outputs;
  int64_t end = 0;
  const auto place = [&](int64_t bytes) {
    const int64_t begin = end;
    end += round_up(bytes, kAlignment);
    return begin;
  };
  const int64_t x = place(rows * inputs * size), weight = place(outputs * inputs * size),
                bias = place(outputs * size), taken = place(result_bytes_),
                tried = place(result_bytes_);
  check_cuda(cudaMalloc(&memory_, static_cast<size_t>(end)), "memory for comparing products");
  const auto at = [&](int64_t begin) -> void* { return static_cast<std::byte*>(memory_) + begin; };
  write_mirrored_rows(like.number, at(x), rows, inputs, kSeedOfRows, true, stream);
  write_mirrored_rows(like.number, at(weight), outputs, inputs, kSeedOfWeights, false, stream);
  call_.x_TI = at(x);
  call_.weight_OI = at(weight);
  if (like.bias_O != nullptr) {
    write_mirrored_rows(like.number, at(bias), 1, outputs, kSeedOfBias, false, stream);
    call_.bias_O = at(bias);
  }
  taken_ = at(taken);
  tried_ = at(tried);
  // sync: a shape's first use. Kernels read weights before what was launched in front of them is done
  // (kernels/cuda/launch.cuh).
  check_cuda(cudaStreamSynchronize(stream), "factors for comparing products");
}

ProductProbe::~ProductProbe() { cudaFree(memory_); }

LinearCall ProductProbe::call_into(void* result) const {
  LinearCall call = call_;
  call.y_TO = result;
  return call;
}

bool ProductProbe::is_equal() const {
  const auto bytes = [&](void* begin) {
    return at::from_blob(begin, {result_bytes_}, at::TensorOptions(at::kByte).device(at::kCUDA));
  };
  return bytes(taken_).equal(bytes(tried_));  // sync: a shape's first use
}

}  // namespace slime::kernels::cuda
