#include "comm/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "core/error.h"

namespace slime::comm {
namespace {

/// AMD's RCCL has NCCL's functions under NCCL's names; it counts where LibTorch's ROCm side is in the process.
const char* name_of_library() {
  static const bool is_rocm = ::dlopen("libtorch_hip.so", RTLD_LAZY | RTLD_NOLOAD) != nullptr;
  return is_rocm ? "librccl.so.1" : "libnccl.so.2";
}
constexpr int kOldest = 21800;  // 2.18

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) throw ConfigError(fmt::format("{} has no {}", name_of_library(), name));
}

NcclLibrary load() {
  // Multicast needs a fabric manager that many machines lack, and gains nothing between a few
  // devices. The user's own setting wins.
  ::setenv("NCCL_NVLS_ENABLE", "0", 0);
  void* library = ::dlopen(name_of_library(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    throw ConfigError(fmt::format(
        "several ranks on GPUs talk through NCCL, and {} cannot be loaded: {}. It comes "
        "with the CUDA side of LibTorch (`SLIME_CUDA=1 ./dev setup`, or the wheel "
        "nvidia-nccl-cu13); put its folder into LD_LIBRARY_PATH",
        name_of_library(), ::dlerror()));
  }
  NcclLibrary nccl{};
  find(library, "ncclGetVersion", nccl.get_version);
  find(library, "ncclGetUniqueId", nccl.get_unique_id);
  find(library, "ncclCommInitRankConfig", nccl.comm_init_rank);
  find(library, "ncclCommAbort", nccl.comm_abort);
  find(library, "ncclCommGetAsyncError", nccl.comm_get_async_error);
  find(library, "ncclGetErrorString", nccl.get_error_string);
  find(library, "ncclGetLastError", nccl.get_last_error);
  find(library, "ncclGroupStart", nccl.group_start);
  find(library, "ncclGroupEnd", nccl.group_end);
  find(library, "ncclAllReduce", nccl.all_reduce);
  find(library, "ncclReduce", nccl.reduce);
  find(library, "ncclReduceScatter", nccl.reduce_scatter);
  find(library, "ncclAllGather", nccl.all_gather);
  find(library, "ncclBroadcast", nccl.broadcast);
  find(library, "ncclSend", nccl.send);
  find(library, "ncclRecv", nccl.receive);
  int version = 0;
  if (nccl.get_version(&version) != NcclResult::kSuccess || version < kOldest)
    throw ConfigError(
        fmt::format("{} is version {}; 2.18 or later is needed", name_of_library(), version));
  return nccl;
}

}  // namespace

std::string NcclLibrary::problem(NcclResult result) const {
  const char* last = get_last_error(nullptr);
  const std::string more = last == nullptr || *last == '\0' ? "" : fmt::format(" ({})", last);
  return fmt::format("NCCL: {}{}", get_error_string(result), more);
}

const NcclLibrary& nccl() {
  static const NcclLibrary library = load();
  return library;
}

}  // namespace slime::comm
