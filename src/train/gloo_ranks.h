#pragma once

/// Ranks over c10d and Gloo: processes (or, in tests, threads) of one host, connected through the
/// loopback address.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "train/ranks.h"

namespace slime::train {

/// A listening socket on 127.0.0.1, port chosen by the system: where ranks find one another. Rank 0
/// makes it before it starts the others, so that nobody can take the port in between.
class Rendezvous final {
 public:
  /// Throws ConfigError when there is no loopback address to listen on.
  Rendezvous();
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

struct GlooConfig {
  int rank = 0;
  int size = 1;
  int port = 0;  // of the rendezvous
  std::chrono::milliseconds connect_timeout{60'000};
  std::chrono::milliseconds timeout{600'000};  // of each collective
  /// Called as a collective begins, with the number of those before it and its name.
  std::function<void(int64_t, const char*)> on_begin = {};
};

/// Joins the group; returns when all ranks have. Rank 0 brings the rendezvous. Throws RanksError
/// when the others do not come in time.
std::unique_ptr<Ranks> make_gloo_ranks(const GlooConfig& config, Rendezvous* rendezvous);

}  // namespace slime::train
