#pragma once

/// Memory of one thread that grows to the largest size requested and is used again by the next
/// kernel.

#include <cstdint>
#include <memory>
#include <new>

namespace slime::kernels::cpu {

template <typename T>
class AlignedBuffer final {
 public:
  /// At least `size` elements, 64-byte aligned, never null; what was there before is lost when it
  /// grows.
  T* reserve(int64_t size) {
    if (size > size_ || data_ == nullptr) {
      data_.reset(
          static_cast<T*>(::operator new(static_cast<std::size_t>(size) * sizeof(T), kAlignment)));
      size_ = size;
    }
    return data_.get();
  }
  T* data() const { return data_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Delete {
    void operator()(T* data) const { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<T, Delete> data_;
  int64_t size_ = 0;
};

}  // namespace slime::kernels::cpu
