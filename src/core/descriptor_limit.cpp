#include "core/descriptor_limit.h"

#include <sys/resource.h>

#include <algorithm>

namespace slime {
namespace {

constexpr rlim_t kMost = 1 << 20;

}  // namespace

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, kMost);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace slime
