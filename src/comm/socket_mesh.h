#pragma once

/// A mesh over stream sockets: processes (or, in tests, threads) that compute on the CPU, connected
/// through the loopback address or, where they are on several hosts, through the addresses of those.
///
/// Any two members of a group have a connection of their own, which began with a proof of the run's token
/// (comm/rank_meeting.h). Sums are added in the order of the ranks, in float32 where numbers have fewer
/// bits, so they are the same bits on all members and in every run.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "comm/mesh.h"

namespace slime::comm {

inline constexpr const char* kLoopback = "127.0.0.1";

/// A listening socket, port chosen by the system: where ranks find one another. Rank 0 makes it
/// before the others look for it, so that nobody can take the port in between. Who connects has to prove
/// the run's token, and nothing listens any more once the ranks have met.
class Rendezvous final {
 public:
  /// On an address of this host, IPv4. Throws ConfigError when it cannot be listened on.
  explicit Rendezvous(const std::string& address = kLoopback);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  int port() const { return port_; }
  /// Gives the socket away.
  int release();

 private:
  int socket_ = -1;
  int port_ = 0;
};

struct SocketMeshConfig {
  int rank = 0;
  ParallelLayout layout;
  std::string address = kLoopback;  // of this rank's host, under which the others reach it
  std::string meeting = kLoopback;  // of rank 0's
  int port = 0;                     // of the rendezvous
  /// Of the run, and never sent: ranks prove to one another that they have it. One of another epoch is
  /// refused.
  std::string token = {};
  int64_t epoch = 0;
  std::chrono::milliseconds connect_timeout{60'000};
  std::chrono::milliseconds timeout{
      600'000};  // of each operation, an exchange of many messages too
  /// Called as an operation begins, with the number of those before it in all groups of this mesh,
  /// and `what`.
  std::function<void(int64_t, const char*)> on_begin = {};
  /// On a GPU: how long an operation was in its stream, waiting for others included, in
  /// milliseconds, and `what`. Called on a thread of the mesh, some time after the operation's end.
  std::function<void(double, const char*)> on_end = {};
};

/// Makes a group of a mesh of the one that sockets connect.
using WrapGroup =
    std::function<std::unique_ptr<RankGroup>(std::unique_ptr<RankGroup> group, Axis axis)>;

/// Joins the other ranks of the layout, at least one; returns when all have. Rank 0 brings the
/// rendezvous, the others null. `wrap`, where there is one, is called for each group, on all ranks in
/// the order of Axis. Throws GroupError when they do not come in time.
std::unique_ptr<Mesh> make_socket_mesh(const SocketMeshConfig& config, Rendezvous* rendezvous,
                                       const WrapGroup& wrap = {});

}  // namespace slime::comm
