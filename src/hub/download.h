#pragma once

/// Files of a repository fetched into the cache: several at once, each from where an earlier download
/// came to, and none under its name before its checksum is right.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hub/cache.h"
#include "hub/hub_name.h"
#include "hub/server.h"

namespace slime::hub {

/// Progress of a download.
struct Transfer {
  std::string what;        // "Qwen/Qwen3-0.6B"
  std::string file;        // the one that grew last
  int num_files = 0;       // that were missing
  int64_t bytes_done = 0;  // of them, what earlier downloads left among it
  int64_t bytes_total = 0;
  int64_t bytes_come = 0;  // by this download
  bool is_over = false;
};

/// Called often, by one thread at a time.
using OnTransfer = std::function<void(const Transfer& transfer)>;

/// Throws ConfigError: not enough room, a checksum that differs, a server that refuses. What came
/// before stays.
void download(const HubName& name, const std::string& commit, std::vector<RepoFile> files,
              const RepoCache& cache, const Server& server, int num_connections,
              const OnTransfer& on_transfer);

}  // namespace slime::hub
