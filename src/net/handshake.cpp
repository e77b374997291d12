#include "net/handshake.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "net/secret.h"

namespace slime::net {
namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint32_t kFrameMagic = 0x464d4c53;  // net/frame_channel.h
constexpr uint32_t kHello = 201, kChallenge = 202, kProof = 203, kAnswer = 204, kWrongSecret = 205;
constexpr std::size_t kHeadBytes = 16, kNonceBytes = 32;
constexpr std::size_t kAnswerLimit = 64 << 10;
constexpr char kWelcome = 'w', kRefusal = 'f', kLater = 'r';

constexpr milliseconds kPatience{5'000};  // with who says nothing
constexpr milliseconds kLeast{250};       // that everybody has, however many stand there
constexpr std::size_t kMostCallers = 64;  // descriptors are few

struct FrameHead {
  uint32_t magic = kFrameMagic;
  uint32_t type = 0;
  uint64_t length = 0;
};
static_assert(sizeof(FrameHead) == kHeadBytes);

std::string frame_of(uint32_t type, std::string_view payload) {
  const FrameHead head{.type = type, .length = payload.size()};
  return std::string(reinterpret_cast<const char*>(&head), sizeof head).append(payload);
}

std::string_view text_of(const Proof& proof) {
  return {reinterpret_cast<const char*>(proof.data()), proof.size()};
}

std::string to_bytes(const Claim& claim) {
  check(claim.role.size() < 256 && claim.role.size() + claim.text.size() < kClaimLimit,
        "a claim is short");
  return static_cast<char>(claim.role.size()) + claim.role + claim.text;
}

std::optional<Claim> claim_from(std::string_view bytes) {
  if (bytes.empty()) return std::nullopt;
  const std::size_t role = static_cast<unsigned char>(bytes[0]);
  if (bytes.size() < 1 + role) return std::nullopt;
  return Claim{.role = std::string(bytes.substr(1, role)),
               .text = std::string(bytes.substr(1 + role))};
}

/// `end`: who proves. Parts of fixed length stand before the one that is not; that has its length.
Proof proof_of(std::string_view secret, char end, std::string_view nonces, const Claim& claim,
               std::string_view answer = {}) {
  const std::string claimed = to_bytes(claim);
  std::string message = fmt::format("slime handshake 1 {}", end);
  message += nonces;
  const uint64_t length = claimed.size();
  message.append(reinterpret_cast<const char*>(&length), sizeof length);
  message += claimed;
  message += answer;
  return hmac_sha256(secret, message);
}

bool is_same_proof(std::string_view given, const Proof& expected) {
  Proof proof{};
  if (given.size() != proof.size()) return false;
  std::memcpy(proof.data(), given.data(), proof.size());
  return net::is_same_proof(proof, expected);
}

// The connecting end.

/// sync: until there is something, or the time is over.
void wait_until(int socket, short events, SteadyClock::time_point deadline) {
  pollfd waiting{.fd = socket, .events = events, .revents = 0};
  const auto left = std::chrono::ceil<milliseconds>(deadline - SteadyClock::now()).count();
  if (left <= 0) throw HandshakeError("who listens did not answer in time");
  ::poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left, 1'000'000'000)));
}

void send_all(int socket, std::string_view rest, SteadyClock::time_point deadline) {
  while (!rest.empty()) {
    const ssize_t sent = ::send(socket, rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait_until(socket, POLLOUT, deadline);
    } else if (errno != EINTR) {
      throw HandshakeError("who listens closed the connection");
    }
  }
}

std::string receive_exactly(int socket, std::size_t size, SteadyClock::time_point deadline) {
  std::string bytes(size, '\0');
  for (std::size_t count = 0; count < size;) {
    const ssize_t got = ::recv(socket, bytes.data() + count, size - count, MSG_DONTWAIT);
    if (got > 0) {
      count += static_cast<std::size_t>(got);
    } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      wait_until(socket, POLLIN, deadline);
    } else if (got == 0 || errno != EINTR) {
      throw HandshakeError("who listens closed the connection");
    }
  }
  return bytes;
}

std::string receive_frame(int socket, uint32_t type, std::size_t limit,
                          SteadyClock::time_point deadline) {
  FrameHead head;
  const std::string bytes = receive_exactly(socket, sizeof head, deadline);
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic == kFrameMagic && head.type == kWrongSecret)
    throw OtherSecretError("who listens has another token");
  if (head.magic != kFrameMagic || head.type != type || head.length > limit)
    throw HandshakeError("who listens does not belong to a run");
  return receive_exactly(socket, head.length, deadline);
}

}  // namespace

std::string introduce(int socket, std::string_view secret, const Claim& claim,
                      milliseconds timeout) {
  const auto deadline = SteadyClock::now() + timeout;
  std::string nonces = random_bytes(kNonceBytes);
  send_all(socket, frame_of(kHello, nonces + to_bytes(claim)), deadline);
  const std::string nonce = receive_frame(socket, kChallenge, kNonceBytes, deadline);
  if (nonce.size() != kNonceBytes) throw HandshakeError("who listens does not belong to a run");
  nonces += nonce;
  send_all(socket, frame_of(kProof, text_of(proof_of(secret, 'c', nonces, claim))), deadline);
  const std::string said = receive_frame(socket, kAnswer, kAnswerLimit, deadline);
  const std::string_view answer =
      std::string_view(said).substr(std::min(said.size(), sizeof(Proof)));
  if (answer.empty() || !is_same_proof(std::string_view(said).substr(0, sizeof(Proof)),
                                       proof_of(secret, 'l', nonces, claim, answer)))
    throw HandshakeError("who listens has not the token of this run");
  const std::string text(answer.substr(1));
  if (answer[0] == kWelcome) return text;
  throw RefusedError(text, answer[0] == kLater);
}

// The listening end.

ListeningSide::ListeningSide(std::string_view secret)
    : secret_(secret), own_nonce_(random_bytes(kNonceBytes)) {}

std::size_t ListeningSide::num_wanted() const {
  if (state_ != State::kWaiting) return 0;
  if (arrived_.size() < kHeadBytes) return kHeadBytes - arrived_.size();
  FrameHead head;
  std::memcpy(&head, arrived_.data(), sizeof head);
  return kHeadBytes + head.length - arrived_.size();
}

std::string ListeningSide::take(std::string_view bytes) {
  check(bytes.size() <= num_wanted(), "a listening side takes what it wants");
  arrived_ += bytes;
  if (arrived_.size() < kHeadBytes) return {};
  FrameHead head;
  std::memcpy(&head, arrived_.data(), sizeof head);
  const bool is_frame = head.magic == kFrameMagic && (head.type == kHello || head.type == kProof) &&
                        head.length <= kNonceBytes + kClaimLimit;
  if (!is_frame) {
    state_ = State::kWrong;
    return {};
  }
  if (arrived_.size() < kHeadBytes + head.length) return {};
  const std::string payload = std::exchange(arrived_, {}).substr(kHeadBytes);
  return take_frame(head.type, payload);
}

std::string ListeningSide::take_frame(uint32_t type, std::string_view payload) {
  if (type == kHello && nonces_.empty() && payload.size() > kNonceBytes) {
    if (auto claim = claim_from(payload.substr(kNonceBytes))) {
      claim_ = *std::move(claim);
      nonces_ = std::string(payload.substr(0, kNonceBytes)) + own_nonce_;
      return frame_of(kChallenge, own_nonce_);
    }
  }
  if (type == kProof && !nonces_.empty()) {
    if (is_same_proof(payload, proof_of(secret_, 'c', nonces_, claim_))) {
      state_ = State::kProven;
      return {};
    }
    state_ = State::kWrong;
    return frame_of(kWrongSecret, "");
  }
  state_ = State::kWrong;
  return {};
}

std::string ListeningSide::answer(char verdict, std::string_view text) const {
  check(state_ == State::kProven, "a stranger gets no answer");
  std::string said = verdict + std::string(text.substr(0, kAnswerLimit / 2));
  const Proof proof = proof_of(secret_, 'l', nonces_, claim_, said);
  return frame_of(kAnswer, std::string(text_of(proof)) + said);
}

std::string ListeningSide::welcome(std::string_view text) const { return answer(kWelcome, text); }

std::string ListeningSide::refusal(std::string_view why, bool may_retry) const {
  return answer(may_retry ? kLater : kRefusal, why);
}

HandshakePeer::HandshakePeer(int socket, std::string_view secret)
    : socket_(socket), side_(secret) {}

HandshakePeer::~HandshakePeer() {
  if (socket_ >= 0) ::close(socket_);
}

bool HandshakePeer::look() {
  while (const std::size_t wanted = side_.num_wanted()) {
    std::string bytes(wanted, '\0');
    const ssize_t got = ::recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (got <= 0) return true;
    bytes.resize(static_cast<std::size_t>(got));
    if (!send(side_.take(bytes))) return true;
  }
  return true;
}

/// What is sent here always fits into a socket's buffer.
bool HandshakePeer::send(std::string_view bytes) const {
  return bytes.empty() || ::send(socket_, bytes.data(), bytes.size(),
                                 MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
}

int HandshakePeer::welcome(std::string_view answer) {
  send(side_.welcome(answer));
  return std::exchange(socket_, -1);
}

void HandshakePeer::refuse(std::string_view why, bool may_retry) {
  send(side_.refusal(why, may_retry));
  ::close(std::exchange(socket_, -1));
}

HandshakeListener::HandshakeListener(int listening, std::string secret)
    : listening_(listening), secret_(std::move(secret)) {}

HandshakeListener::~HandshakeListener() { ::close(listening_); }

bool HandshakeListener::has_room() const {
  return callers_.size() < kMostCallers || SteadyClock::now() - callers_.front()->since() > kLeast;
}

void HandshakeListener::add_to(std::vector<pollfd>& sockets) const {
  if (has_room()) sockets.push_back({.fd = listening_, .events = POLLIN, .revents = 0});
  for (const auto& caller : callers_)
    sockets.push_back({.fd = caller->descriptor(), .events = POLLIN, .revents = 0});
}

void HandshakeListener::wait(milliseconds limit) const {
  std::vector<pollfd> sockets;
  add_to(sockets);
  ::poll(sockets.data(), sockets.size(), static_cast<int>(limit.count()));
}

std::vector<std::unique_ptr<HandshakePeer>> HandshakeListener::look() {
  while (has_room()) {
    const int socket = accept_from(listening_);
    if (socket < 0) break;
    if (callers_.size() >= kMostCallers) callers_.erase(callers_.begin());
    callers_.push_back(std::make_unique<HandshakePeer>(socket, secret_));
  }
  std::vector<std::unique_ptr<HandshakePeer>> proven, waiting;
  const auto now = SteadyClock::now();
  for (auto& caller : callers_) {
    if (!caller->look()) {
      if (now - caller->since() < kPatience) waiting.push_back(std::move(caller));
    } else if (caller->is_proven()) {
      proven.push_back(std::move(caller));
    }
  }
  callers_ = std::move(waiting);
  return proven;
}

}  // namespace slime::net
