#include "kernels/cpu/cpu_device.h"

#include <ATen/Parallel.h>

#include "kernels/cpu/fast_device.h"
#include "kernels/cpu/processor.h"
#include "kernels/cpu/thread_pool.h"

namespace slime::kernels::cpu {
namespace {

/// Our own kernels do the products, so ATen keeps to one thread: its waiting workers spin, and would
/// take the cores from ours.
bool take_the_cores() {
  if (num_threads() >= 1) at::set_num_threads(1);
  return true;
}

}  // namespace

const Device& device() {
  static const ReferenceDevice reference;
  static const FastDevice fast;
  static const bool is_fast = has_avx2() && take_the_cores();
  return is_fast ? static_cast<const Device&>(fast) : reference;
}

}  // namespace slime::kernels::cpu
