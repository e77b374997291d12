#pragma once

/// NCCL's C interface, as far as groups of ranks need it. The library (libnccl.so.2, from the wheel
/// nvidia-nccl-cu13; beside LibTorch's ROCm side AMD's librccl.so.1, which has the same names) is loaded with the first group
/// of a GPU, so that the program starts without it;
/// what it exports is declared here, because its own header brings CUDA's into whatever includes it
/// (docs/how/rank_groups.md). These declarations are those of every NCCL 2.

#include <cstddef>
#include <string>

namespace slime::comm {

using NcclComm = void*;    // ncclComm_t
using NcclStream = void*;  // cudaStream_t

struct NcclUniqueId {
  char bytes[128];
};

// Values of ncclResult_t, ncclDataType_t and ncclRedOp_t.
enum class NcclResult : int { kSuccess = 0, kInvalidUsage = 5, kInProgress = 7 };
enum class NcclType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9
};
enum class NcclSum : int { kSum = 0, kMax = 2, kMin = 3 };

/// ncclConfig_t as of NCCL 2.18; later ones take it and fill in what they have more.
struct NcclConfig {
  static constexpr int kUndefined = static_cast<int>(0x80000000);
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;  // thread blocks of an operation
  const char* net_name = nullptr;
  int split_share = kUndefined;
};

struct NcclLibrary {
  NcclResult (*get_version)(int* version);
  NcclResult (*get_unique_id)(NcclUniqueId* id);
  NcclResult (*comm_init_rank)(NcclComm* comm, int size, NcclUniqueId id, int rank,
                               NcclConfig* config);
  NcclResult (*comm_abort)(NcclComm comm);
  NcclResult (*comm_get_async_error)(NcclComm comm, NcclResult* error);
  const char* (*get_error_string)(NcclResult result);
  const char* (*get_last_error)(NcclComm comm);
  NcclResult (*group_start)();
  NcclResult (*group_end)();
  NcclResult (*all_reduce)(const void* in, void* out, std::size_t count, NcclType type, NcclSum sum,
                           NcclComm comm, NcclStream stream);
  NcclResult (*reduce)(const void* in, void* out, std::size_t count, NcclType type, NcclSum sum,
                       int root, NcclComm comm, NcclStream stream);
  NcclResult (*reduce_scatter)(const void* in, void* out, std::size_t count_of_each, NcclType type,
                               NcclSum sum, NcclComm comm, NcclStream stream);
  NcclResult (*all_gather)(const void* in, void* out, std::size_t count_of_each, NcclType type,
                           NcclComm comm, NcclStream stream);
  NcclResult (*broadcast)(const void* in, void* out, std::size_t count, NcclType type, int root,
                          NcclComm comm, NcclStream stream);
  NcclResult (*send)(const void* in, std::size_t count, NcclType type, int peer, NcclComm comm,
                     NcclStream stream);
  NcclResult (*receive)(void* out, std::size_t count, NcclType type, int peer, NcclComm comm,
                        NcclStream stream);

  /// What NCCL says about a result that is no success.
  std::string problem(NcclResult result) const;
};

/// The first call loads it. Throws ConfigError with what is missing and what would help.
/// NVLink multicast stays off unless NCCL_NVLS_ENABLE says otherwise.
const NcclLibrary& nccl();

}  // namespace slime::comm
