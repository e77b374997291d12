#pragma once

/// User id of the process at the other end of a local connection.

#include <sys/types.h>

#include <optional>

namespace slime::net {

/// The user whose process has the other end of this connected TCP socket open. Nothing: it is on another
/// machine, or closed already, or the system does not say.
std::optional<uid_t> user_of_peer(int socket);

/// True for this process's user and for root.
bool is_own_user(std::optional<uid_t> user);

}  // namespace slime::net
