#pragma once

/// The store that torchrun's own process holds at MASTER_ADDR:MASTER_PORT: a run's first process writes
/// there where it listens, since the port itself is taken.

#include <chrono>
#include <string>

namespace slime::comm {

/// Throw GroupError when there is no store there, or the key does not come in time.
void write_to_agent_store(const std::string& address, int port, const std::string& key,
                          const std::string& value);
std::string read_from_agent_store(const std::string& address, int port, const std::string& key,
                                  std::chrono::milliseconds timeout);

}  // namespace slime::comm
