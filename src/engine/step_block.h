#pragma once

/// The numbers of one step, on their way to the GPU: arrays of several types in one block of
/// pinned memory, mirrored by one copy into a block on the device.
///
/// Two host blocks take turns, because the copy of the step before may not have happened yet; the
/// device has one, because steps follow one another on its stream. The place of an array depends on
/// the sizes of those added before it alone, so a recorded step finds the next one's numbers where
/// it looked for its own.

#include <cstring>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/tensor.h"

namespace slime::engine {

class StepBlock {
 public:
  StepBlock(int64_t capacity_bytes, at::Device device);

  /// Starts the next step's arrays, in the other host block. Without `describes` last_on_device() is undefined: for
  /// a recorded step, which has the views already.
  void begin(bool describes = true);

  /// Room for `count` numbers; where they are on the host.
  template <typename T>
  std::span<T> add(int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    last_ = used_;
    check(used_ + bytes <= capacity_, "the numbers of a step fit into its block");
    used_ = (used_ + bytes + kAlignment - 1) / kAlignment * kAlignment;
    return {reinterpret_cast<T*>(host() + last_), static_cast<std::size_t>(count)};
  }
  template <typename T>
  void add(std::span<const T> numbers) {
    const auto room = add<T>(static_cast<int64_t>(numbers.size()));
    if (!numbers.empty()) std::memcpy(room.data(), numbers.data(), numbers.size_bytes());
  }

  /// The device's side of the array that was added last; filled by send().
  Tensor last_on_device(at::ScalarType type, int64_t count) const;

  /// Copies what was added to the device, on the current stream.
  void send();

 private:
  static constexpr int64_t kAlignment = 16;

  std::byte* host() { return static_cast<std::byte*>(host_[turn_].data_ptr()); }

  int64_t capacity_;
  Tensor host_[2];  // uint8, pinned
  Tensor device_;   // uint8
  int turn_ = 0;
  bool describes_ = true;
  int64_t used_ = 0;
  int64_t last_ = 0;
};

}  // namespace slime::engine
