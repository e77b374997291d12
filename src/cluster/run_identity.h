#pragma once

/// Who belongs to a run, and to which of its epochs: what opens each connection between its
/// processes, so that nobody else's process, and none that was left behind, takes part.
///
/// The controller draws a token once and gives it to its children in their environment, which the
/// system shows to nobody but the user; command lines everybody can read. The epoch grows each time
/// trainer ranks are started again: who still speaks of an older one is refused.

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
/// run. Without them nothing is asked. Throws ConfigError for an epoch that is no number.
RunIdentity take_identity_from_environment();

/// In a time that says nothing of where they differ.
bool is_same_token(std::string_view a, std::string_view b);

/// What a connection begins with, and back: "2 <token>".
std::string to_greeting(const RunIdentity& identity);
/// Why who sent this greeting is refused by `own`; empty: it is of the same run, and of the same
/// epoch or a newer one. Never shows a token.
std::string why_refused(const RunIdentity& own, std::string_view greeting);

}  // namespace slime::cluster
