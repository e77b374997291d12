#pragma once

/// A mesh over NCCL: processes, each with a GPU of its own.
///
/// Tensors on the GPU travel through NCCL, in the current stream; those on the CPU and byte strings
/// through sockets, over which the ranks also meet (comm/socket_mesh.h).

#include <memory>

#include "comm/socket_mesh.h"

namespace slime::comm {

/// Joins the other ranks as make_socket_mesh() does, which says what `wrap` is. The GPU, device 0 of this process, is open. Throws
/// ConfigError when NCCL cannot be loaded.
std::unique_ptr<Mesh> make_nccl_mesh(const SocketMeshConfig& config, Rendezvous* rendezvous,
                                     const WrapGroup& wrap = {});

}  // namespace slime::comm
