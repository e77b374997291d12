#pragma once

/// The meeting of a mesh's ranks: authenticated connections between any two of them, and nothing that
/// listens once they are there.
///
/// Every rank listens at a port of its own. The others go to rank 0, whose port they were told over the
/// controller's connections, say where they listen themselves, and get the table of all. Of two ranks the
/// greater one connects to the smaller one. Each connection begins with net/handshake.h, and says whose
/// it is, of which epoch, and for which group. There is no store that could be read or written.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/socket_mesh.h"
#include "net/handshake.h"

namespace slime::comm {

/// What a rank claims when it connects to another one: "2 5 1 40123 10.0.0.2".
struct RankClaim {
  int64_t epoch = 0;
  int rank = 0;
  int group = 0;        // kTable: to rank 0, for the table
  int port = 0;         // kTable: where it listens,
  std::string address;  // at one of its host's own
  bool operator==(const RankClaim&) const = default;

  static constexpr int kTable = -1;
};

std::string to_text(const RankClaim& claim);
/// Nothing for bytes of another form.
std::optional<RankClaim> rank_claim_from(std::string_view text);

class RankMeeting final {
 public:
  /// `listening`: of net::listen_on(), its own. A rank other than 0 goes to rank 0 at once. Throws
  /// GroupError where that refuses it or has not come.
  RankMeeting(const SocketMeshConfig& config, int listening);
  ~RankMeeting();
  RankMeeting(const RankMeeting&) = delete;
  RankMeeting& operator=(const RankMeeting&) = delete;

  /// A connected socket to `peer` for this group, which the peer asks for as well; the caller's. Waits.
  /// Throws std::runtime_error.
  int connect(int group, int peer);

 private:
  using Steady = std::chrono::steady_clock;
  struct Arrived {
    int socket = -1;
    RankClaim claim;
  };

  void watch(const std::stop_token& stop);
  void greet(net::HandshakePeer& caller);
  /// The socket of a claim of `group` by `peer`, once it is there.
  Arrived wait_for(int group, int peer);
  void exchange_table();
  int connect_to(const std::string& address, int port, const RankClaim& claim);
  std::chrono::milliseconds left() const;

  const SocketMeshConfig& config_;
  const Steady::time_point deadline_;
  net::HandshakeListener listener_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, Arrived> arrived_;  // by group and rank; guarded by mutex_
  int to_first_ = -1;  // of a rank other than 0, until it has the table
  std::vector<std::pair<std::string, int>> table_;  // address and port of each rank
  std::jthread watcher_;                            // the last: it uses the others
};

}  // namespace slime::comm
