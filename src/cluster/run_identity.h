#pragma once

/// The token of a run and its epoch: what a process needs to take part in it.
///
/// The token is a secret that no connection carries: processes prove to one another that they have it
/// (net/handshake.h). The controller draws it once; a child finds it in its environment, which the system
/// shows to nobody but its user, and overwrites it there; command lines everybody can read. The epoch
/// grows each time trainer ranks are started again: who still speaks of an older one is refused.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace slime::cluster {

struct RunIdentity {
  std::string token;  // 64 hexadecimal digits, of 32 random bytes; empty: nothing is asked (tests)
  int64_t epoch = 0;
  bool operator==(const RunIdentity&) const = default;
};

inline constexpr const char* kTokenVariable = "SLIME_RUN_TOKEN";
inline constexpr const char* kEpochVariable = "SLIME_RUN_EPOCH";

/// 32 bytes of the system's entropy, in hexadecimal.
std::string make_run_token();

/// Which program this process runs: processes of one run understand each other because it is the same,
/// byte for byte. "54023168-9f0b21aa", of its size and checksum.
std::string own_program();

/// "NAME=value", to be added to a child's environment.
std::vector<std::string> to_environment(const RunIdentity& identity);
/// Of this process's environment, out of which they are taken: its own children have no part in the
/// run, and the memory that /proc/PID/environ shows has zeros in their place. Without them nothing is
/// asked. Throws ConfigError for an epoch that is no number.
RunIdentity take_identity_from_environment();

/// The first thing on a connection that a process was given by who started it: "2", its epoch.
std::string to_greeting(const RunIdentity& identity);
/// Why who sent this greeting is refused by `own`; empty: it is of the same epoch or a newer one.
std::string why_refused(const RunIdentity& own, std::string_view greeting);

}  // namespace slime::cluster
