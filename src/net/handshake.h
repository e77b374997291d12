#pragma once

/// Mutual proof of a shared secret, with which every connection between processes of a run begins.
///
///   connecting end                                 listening end
///   hello      nonce c, claim                ->
///                                            <-    challenge  nonce l
///   proof      HMAC(secret, "c" c l claim)   ->
///                                            <-    answer     HMAC(secret, "l" c l claim answer), answer
///
/// The secret itself never travels, and a recording is of no use: both nonces are 32 fresh random
/// bytes. A claim says who connects and what for ("rank", "host", ...), so that a proof is good for nothing
/// else. Who has not proven the secret gets a challenge and the word that it is wrong; no memory beyond
/// kClaimLimit, no descriptor beyond a few and no time beyond some seconds are spent on it.
///
/// Frames have the form of net/frame_channel.h. What follows on the connection is neither encrypted nor
/// signed: who can change what passes through the network between two hosts is not kept out.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "net/tcp.h"

struct pollfd;

namespace slime::net {

inline constexpr std::size_t kClaimLimit = 4096;  // bytes

/// What the connecting end says of itself.
struct Claim {
  std::string role;  // "host"; at most 255 bytes
  std::string text;  // of a form that its role has
  bool operator==(const Claim&) const = default;
};

/// The handshake did not come to an end: who answers is no listening end of this kind, or has not the
/// secret, or did not answer in time.
class HandshakeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The listening end, which has the secret, does not want this connection.
class RefusedError : public std::runtime_error {
 public:
  RefusedError(const std::string& why, bool may_retry)
      : std::runtime_error(why), may_retry_(may_retry) {}
  bool may_retry() const { return may_retry_; }

 private:
  bool may_retry_;
};

/// The listening end says that it has another secret. Anybody can say so.
class OtherSecretError : public HandshakeError {
 public:
  using HandshakeError::HandshakeError;
};

/// The connecting end's part, on a connected stream socket that stays the caller's. Returns what the
/// listening end answers; no byte behind it has been read. Throws HandshakeError and RefusedError.
std::string introduce(int socket, std::string_view secret, const Claim& claim,
                      std::chrono::milliseconds timeout);

/// The listening end's part, as a machine that bytes are put into.
class ListeningSide final {
 public:
  /// `secret` outlives the object.
  explicit ListeningSide(std::string_view secret);

  enum class State { kWaiting, kProven, kWrong };
  State state() const { return state_; }
  /// How many bytes it is to be given next, at most; 0: none, it is not waiting.
  std::size_t num_wanted() const;
  /// Takes them; returns what is to be sent.
  std::string take(std::string_view bytes);
  /// Proven.
  const Claim& claim() const { return claim_; }
  /// The last thing to send. `why` says for a person why the connection is not wanted.
  std::string welcome(std::string_view answer) const;
  std::string refusal(std::string_view why, bool may_retry) const;

 private:
  std::string answer(char verdict, std::string_view text) const;
  std::string take_frame(uint32_t type, std::string_view payload);

  std::string_view secret_;
  std::string arrived_;
  std::string own_nonce_, nonces_;
  Claim claim_;
  State state_ = State::kWaiting;
};

/// A connection during its handshake, or just after it.
class HandshakePeer final {
 public:
  /// `secret` outlives the object; `socket` is its own.
  HandshakePeer(int socket, std::string_view secret);
  ~HandshakePeer();
  HandshakePeer(const HandshakePeer&) = delete;
  HandshakePeer& operator=(const HandshakePeer&) = delete;

  /// Reads what has come, without waiting. False: it is still waited for.
  bool look();
  /// False: it has closed, or has not proven the secret.
  bool is_proven() const { return side_.state() == ListeningSide::State::kProven; }
  const Claim& claim() const { return side_.claim(); }
  int descriptor() const { return socket_; }
  std::chrono::steady_clock::time_point since() const { return since_; }

  /// The socket belongs to the caller from here on. The other end may be gone.
  int welcome(std::string_view answer = "");
  void refuse(std::string_view why, bool may_retry = false);

 private:
  bool send(std::string_view bytes) const;

  int socket_;
  ListeningSide side_;
  const std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

/// A listening socket and the peers that have not ended their handshake. One thread.
class HandshakeListener final {
 public:
  /// `listening` is its own, from net::listen_on().
  HandshakeListener(int listening, std::string secret);
  ~HandshakeListener();
  HandshakeListener(const HandshakeListener&) = delete;
  HandshakeListener& operator=(const HandshakeListener&) = delete;

  int port() const { return port_of(listening_); }
  /// What is to be waited for, with POLLIN.
  void add_to(std::vector<pollfd>& sockets) const;
  /// Waits at most so long, for nothing else.
  void wait(std::chrono::milliseconds limit) const;
  /// Those who have proven the secret since the last look; without waiting.
  std::vector<std::unique_ptr<HandshakePeer>> look();

 private:
  bool has_room() const;

  int listening_;
  const std::string secret_;
  std::vector<std::unique_ptr<HandshakePeer>> callers_;  // oldest first
};

}  // namespace slime::net
