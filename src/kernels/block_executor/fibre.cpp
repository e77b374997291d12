#include "kernels/block_executor/fibre.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace slime::kernels {
namespace {

constexpr size_t kStackBytes = size_t{256} << 10, kGuardBytes = 4096;

}  // namespace

struct Fibre::Context {
  ucontext_t place{};
  std::function<void()> body;
  char* memory = nullptr;  // the guard page, then the stack; null: the thread's own stack
  // What the sanitizers want to know; unused otherwise.
  const void* stack_bottom = nullptr;
  size_t stack_size = 0;
  void* fake_stack = nullptr;
  void* tsan = nullptr;
  Fibre* came_from = nullptr;

  /// After a switch to this one.
  void arrived() {
#if defined(__SANITIZE_ADDRESS__)
    const void* bottom = nullptr;
    size_t size = 0;
    __sanitizer_finish_switch_fiber(fake_stack, &bottom, &size);
    if (came_from != nullptr && came_from->context_->memory == nullptr) {
      came_from->context_->stack_bottom = bottom;
      came_from->context_->stack_size = size;
    }
#endif
  }
};

Fibre::Fibre() : context_(std::make_unique<Context>()) {
#if defined(__SANITIZE_THREAD__)
  context_->tsan = __tsan_get_current_fiber();
#endif
}

Fibre::Fibre(std::function<void()> body) : context_(std::make_unique<Context>()) {
  context_->body = std::move(body);
  void* memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  context_->memory = static_cast<char*>(memory);
  mprotect(memory, kGuardBytes, PROT_NONE);
  getcontext(&context_->place);
  context_->place.uc_stack.ss_sp = context_->memory + kGuardBytes;
  context_->place.uc_stack.ss_size = kStackBytes;
  context_->place.uc_link = nullptr;
  context_->stack_bottom = context_->memory + kGuardBytes;
  context_->stack_size = kStackBytes;
#if defined(__SANITIZE_THREAD__)
  context_->tsan = __tsan_create_fiber(0);
#endif
  // makecontext() passes numbers of 32 bits.
  const auto self = reinterpret_cast<uintptr_t>(this);
  makecontext(&context_->place, reinterpret_cast<void (*)()>(&Fibre::enter), 2,
              static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
}

Fibre::~Fibre() {
  if (context_->memory == nullptr) return;
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(context_->tsan);
#endif
  munmap(context_->memory, kGuardBytes + kStackBytes);
}

void Fibre::enter(unsigned high, unsigned low) {
  auto* self = reinterpret_cast<Fibre*>(uintptr_t{high} << 32 | low);
  self->context_->arrived();
  self->context_->body();
}

void Fibre::switch_to(Fibre& other) {
  other.context_->came_from = this;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&context_->fake_stack, other.context_->stack_bottom,
                                 other.context_->stack_size);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(other.context_->tsan, 0);
#endif
  swapcontext(&context_->place, &other.context_->place);
  context_->arrived();
}

}  // namespace slime::kernels
