#pragma once

/// Ranks as threads of a test, connected as processes are.

#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "comm/socket_mesh.h"

namespace slime::parity {

/// Calls body(mesh) on a thread for each rank of the layout; what one of them throws is thrown
/// here.
inline void on_mesh(const comm::ParallelLayout& layout,
                    const std::function<void(const comm::Mesh&)>& body,
                    std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  const int size = layout.world_size();
  if (size == 1) return body(comm::Mesh::single());
  comm::Rendezvous rendezvous;
  const int port = rendezvous.port();
  std::vector<std::exception_ptr> errors(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto mesh = comm::make_socket_mesh({.rank = rank,
                                                  .layout = layout,
                                                  .port = port,
                                                  .connect_timeout = std::chrono::seconds(60),
                                                  .timeout = timeout},
                                                 rank == 0 ? &rendezvous : nullptr);
        body(*mesh);
        mesh->world().barrier("leaving together");
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

/// Data-parallel ranks.
inline void on_ranks(int size, const std::function<void(const comm::Mesh&)>& body,
                     std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  on_mesh({.dp = size}, body, timeout);
}

}  // namespace slime::parity
