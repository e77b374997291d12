#pragma once

/// Stream sockets over IPv4, for connections between the hosts of a run. All are closed on exec, send small
/// frames at once, and notice after a minute that the other host is gone.

#include <chrono>
#include <string>

namespace slime::net {

/// "10.0.0.2" of a name or an address; the first one. Throws std::runtime_error with the reason.
std::string resolve_ipv4(const std::string& host);

/// A listening socket; port 0: one that the system chooses. Throws std::runtime_error with the reason.
int listen_on(const std::string& address, int port);
int port_of(int listening);

/// A connected one. Throws std::runtime_error with the reason, a deadline among them.
int connect_to(const std::string& address, int port, std::chrono::milliseconds timeout);
/// The next connection; -1: there is none now.
int accept_from(int listening);

/// Ends all connections of this process to another host, whoever has them: their owners see the end of the
/// stream, where a cut cable would have left them waiting. Returns how many.
int shut_down_all_to(const std::string& address);

/// The other end's address.
std::string peer_address(int socket);

}  // namespace slime::net
