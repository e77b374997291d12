#include "plugin/shared_tensors.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/gpu/gpu.h"

namespace slime::plugin {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kFirstBytes = int64_t{1} << 20;

std::string dtype_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kLong:
      return "int64";
    case at::kInt:
      return "int32";
    default:
      throw BugError("tensors of users' functions are float32, float64, int64 or int32");
  }
}

/// That a tensor takes of a block.
int64_t bytes_of(at::IntArrayRef shape, at::ScalarType dtype) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(dtype));
  for (const int64_t size : shape) bytes *= size;
  return (std::max<int64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

json::object describe(at::IntArrayRef shape, at::ScalarType dtype) {
  json::array sizes;
  for (const int64_t size : shape) sizes.emplace_back(size);
  return {{"dtype", dtype_name(dtype)}, {"shape", std::move(sizes)}};
}

Tensor copy_on_host(const Tensor& tensor) {
  return tensor.to(at::kCPU, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

SharedBlock::SharedBlock(TrainerHost& host, SharedOn place, int64_t bytes) {
  if (place == SharedOn::kHost) {
    host_ = std::make_unique<SharedMemory>(bytes);
    number_ = host.share(*host_);
  } else {
    gpu_ = kernels::opened_gpu().share_memory(bytes);
    number_ = host.share(gpu_->size_bytes(), gpu_->descriptor(), gpu_->device_index());
  }
}

int64_t SharedBlock::bytes() const { return host_ ? host_->bytes() : gpu_->size_bytes(); }

SharedTensor SharedBlock::space(at::IntArrayRef shape, at::ScalarType dtype, int64_t bytes) {
  SharedTensor out{.word = describe(shape, dtype), .tensor = {}};
  out.word["memory"] = number_;
  out.word["offset"] = used_;
  out.tensor = host_ ? at::from_blob(host_->data() + used_, shape, at::dtype(dtype))
                     : gpu_->view(used_, shape, dtype);
  used_ += bytes;
  return out;
}

void SharedTensors::begin() {
  if (blocks_.size() > 1) {
    // One block of the size that was needed, so that the next call finds all of it in one.
    int64_t total = 0;
    for (const auto& block : blocks_) {
      total += block->bytes();
      host_.forget(block->number());
    }
    blocks_.clear();
    blocks_.push_back(std::make_unique<SharedBlock>(host_, place_, total));
  }
  for (const auto& block : blocks_) block->begin();
}

SharedTensor SharedTensors::space(at::IntArrayRef shape, at::ScalarType dtype) {
  const int64_t needed = bytes_of(shape, dtype);
  if (blocks_.empty() || !blocks_.back()->has_room(needed)) {
    const int64_t last = blocks_.empty() ? 0 : blocks_.back()->bytes();
    blocks_.push_back(
        std::make_unique<SharedBlock>(host_, place_, std::max({needed, 2 * last, kFirstBytes})));
  }
  return blocks_.back()->space(shape, dtype, needed);
}

SharedTensor SharedTensors::put(const Tensor& tensor) {
  SharedTensor out = space(tensor.sizes(), tensor.scalar_type());
  out.tensor.copy_(tensor.detach());
  return out;
}

SharedTensors::Apart::Apart(SharedTensors& tensors, int64_t count, at::IntArrayRef shape,
                            at::ScalarType dtype)
    : host_(tensors.host_), block_(tensors.host_, tensors.place_, count * bytes_of(shape, dtype)) {
  for (int64_t i = 0; i < count; ++i)
    given_.push_back(block_.space(shape, dtype, bytes_of(shape, dtype)));
}

SharedTensors::Apart::~Apart() {
  if (!is_released_) host_.forget(block_.number());
}

void SharedTensors::Apart::release() {
  is_released_ = true;
  host_.release(block_.number());
}

}  // namespace slime::plugin
