#include "kernels/cpu/cpu_device.h"

#include <ATen/Parallel.h>

#include "kernels/cpu/fast_device.h"
#include "kernels/cpu/processor.h"
#include "kernels/cpu/thread_pool.h"

namespace slime::kernels::cpu {
namespace {

/// Where our own kernels do the products, ATen keeps to one thread: its waiting workers spin, and
/// would take the cores from ours. Where ATen multiplies bfloat16 itself (AVX-512 without AMX) it
/// keeps its threads.
bool take_the_cores() {
  const bool own_products = num_threads() >= 1 && (!has_bfloat16_products() || has_amx());
  if (own_products) at::set_num_threads(1);
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
