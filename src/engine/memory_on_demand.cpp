#include "engine/memory_on_demand.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdlib>
#include <span>

#include "core/out_of_memory.h"

namespace slime::engine {
namespace {

/// The huge pages that lie wholly inside `bytes` bytes from `memory` on.
std::span<std::byte> whole_pages(void* memory, int64_t bytes) {
  constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
  const auto start = reinterpret_cast<uintptr_t>(memory);
  const auto begin = (start + kHugePage - 1) / kHugePage * kHugePage;
  const auto end = (start + static_cast<uintptr_t>(bytes)) / kHugePage * kHugePage;
  if (begin >= end) return {};
  return {reinterpret_cast<std::byte*>(begin), end - begin};
}

}  // namespace

Tensor zeros_on_demand(int64_t count, int64_t size, const char* what) {
  if (size == 0) return at::empty({0}, at::TensorOptions(at::kByte));
  void* memory = std::calloc(count, size);
  if (memory == nullptr)
    throw OutOfMemory(fmt::format("no room for {:.2f} GiB of {} of a layer",
                                  static_cast<double>(count * size) / (int64_t{1} << 30), what));
  const auto pages = whole_pages(memory, count * size);
  // A wish: what the system answers changes nothing here.
  if (!pages.empty()) madvise(pages.data(), pages.size(), MADV_HUGEPAGE);
  return at::from_blob(memory, {count * size}, std::free, at::TensorOptions(at::kByte));
}

void give_back_memory(const Tensor& bytes) {
  const auto pages = whole_pages(bytes.data_ptr(), static_cast<int64_t>(bytes.nbytes()));
  if (!pages.empty()) madvise(pages.data(), pages.size(), MADV_DONTNEED);
}

}  // namespace slime::engine
