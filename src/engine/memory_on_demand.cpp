#include "engine/memory_on_demand.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <sys/mman.h>

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
  const auto bytes = static_cast<std::size_t>(count) * static_cast<std::size_t>(size);
  // Not calloc(): a trainer's C library keeps what is freed (train/keep_freed_memory.h), and writes
  // zeros over all of what it gives again.
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw OutOfMemory(fmt::format("no room for {:.2f} GiB of {} of a layer",
                                  static_cast<double>(bytes) / (int64_t{1} << 30), what));
  const auto pages = whole_pages(memory, count * size);
  // A extras: what the system answers changes nothing here.
  if (!pages.empty()) madvise(pages.data(), pages.size(), MADV_HUGEPAGE);
  return at::from_blob(
      memory, {count * size}, [bytes](void* all) { ::munmap(all, bytes); },
      at::TensorOptions(at::kByte));
}

void give_back_memory(const Tensor& bytes) {
  const auto pages = whole_pages(bytes.data_ptr(), static_cast<int64_t>(bytes.nbytes()));
  if (!pages.empty()) madvise(pages.data(), pages.size(), MADV_DONTNEED);
}

}  // namespace slime::engine
