#include "loop/shared_tensors.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.h"

namespace slime::loop {
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

}  // namespace

void SharedTensors::begin() {
  if (blocks_.size() > 1) {
    // One block of the size that was needed, so that the next call finds all of it in one.
    int64_t total = 0;
    for (const Block& block : blocks_) {
      total += block.memory->bytes();
      host_.forget(block.number);
    }
    blocks_.clear();
    auto memory = std::make_unique<plugin::SharedMemory>(total);
    const int64_t number = host_.share(*memory);
    blocks_.push_back({std::move(memory), number, 0});
  }
  for (Block& block : blocks_) block.used = 0;
}

SharedTensor SharedTensors::space(at::IntArrayRef shape, at::ScalarType dtype) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(dtype));
  for (const int64_t size : shape) bytes *= size;
  const int64_t needed = (std::max<int64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  if (blocks_.empty() || blocks_.back().used + needed > blocks_.back().memory->bytes()) {
    const int64_t last = blocks_.empty() ? 0 : blocks_.back().memory->bytes();
    auto memory = std::make_unique<plugin::SharedMemory>(std::max({needed, 2 * last, kFirstBytes}));
    const int64_t number = host_.share(*memory);
    blocks_.push_back({std::move(memory), number, 0});
  }
  Block& block = blocks_.back();
  json::array sizes;
  for (const int64_t size : shape) sizes.emplace_back(size);
  SharedTensor out;
  out.word = {{"memory", block.number},
              {"offset", block.used},
              {"dtype", dtype_name(dtype)},
              {"shape", std::move(sizes)}};
  out.tensor = at::from_blob(block.memory->data() + block.used, shape, at::dtype(dtype));
  block.used += needed;
  return out;
}

SharedTensor SharedTensors::put(const Tensor& tensor) {
  SharedTensor out = space(tensor.sizes(), tensor.scalar_type());
  out.tensor.copy_(tensor.detach());
  return out;
}

}  // namespace slime::loop
