#pragma once

/// A measurement on several devices: this process is rank 0, each other rank is a process that runs the
/// same command with --rank and --port, and sees one device.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/mesh.h"

namespace slime::bench {

struct RankOptions {
  std::string layout = "1";          // see layout_from()
  int rank = 0;                      // of this process
  int port = 0;                      // of rank 0's rendezvous, at the other ranks
  std::vector<std::string> command;  // words of this command, for the other ranks
};

/// "dp2", "tp2-sp", "pp2-chunks2", "pp2-first20", "dp2-cp2", "cp2-contiguous"; "1": one device. Throws
/// ConfigError for another word.
comm::ParallelLayout layout_from(const std::string& text);

class RankProcesses final {
 public:
  /// Milliseconds in its stream of a collective that has ended, and what it was for.
  using OnEnd = std::function<void(double, const char* what)>;

  /// Opens the GPU; starts the other ranks, and meets them. Throws ConfigError when there are fewer
  /// devices.
  RankProcesses(const RankOptions& options, OnEnd on_end);
  /// Waits for the others.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  const comm::Mesh& mesh() const { return mesh_ ? *mesh_ : comm::Mesh::single(); }

 private:
  std::vector<int64_t> processes_;
  std::unique_ptr<comm::Mesh> mesh_;  // null: one device
};

}  // namespace slime::bench
