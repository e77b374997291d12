#include "net/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "net/secret.h"

namespace slime::net {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr milliseconds kLong{5'000};
const std::string kSecret(64, 'a');
const Claim kClaim{.role = "rank", .text = "3 of 4"};

/// A listener that somebody stands behind: `greet` is called with each who has proven the secret.
class Watched {
 public:
  explicit Watched(std::function<void(HandshakePeer&)> greet, const std::string& secret = kSecret)
      : listener_(listen_on("127.0.0.1", 0), secret),
        port_(listener_.port()),
        watcher_([this, greet = std::move(greet)](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            listener_.wait(milliseconds(10));
            for (const auto& caller : listener_.look()) greet(*caller);
          }
        }) {}
  int connect() const { return connect_to("127.0.0.1", port_, kLong); }

 private:
  HandshakeListener listener_;
  int port_;
  std::jthread watcher_;
};

struct Connection {
  int socket;
  explicit Connection(int socket_) : socket(socket_) {}
  ~Connection() { ::close(socket); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void send(std::string_view bytes) const {
    ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  /// All until the other end closes, or so many.
  std::string receive(std::size_t most = 1 << 20) const {
    std::string all;
    while (all.size() < most) {
      pollfd waiting{.fd = socket, .events = POLLIN, .revents = 0};
      if (::poll(&waiting, 1, static_cast<int>(kLong.count())) <= 0) return all + " ... and waits";
      std::string bytes(most - all.size(), '\0');
      const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), 0);
      if (got <= 0) break;
      all += bytes.substr(0, static_cast<std::size_t>(got));
    }
    return all;
  }
};

/// "SLMF", type, length, payload.
std::string frame(uint32_t type, std::string_view payload) {
  std::string bytes = "SLMF";
  const uint64_t length = payload.size();
  bytes.append(reinterpret_cast<const char*>(&type), 4);
  bytes.append(reinterpret_cast<const char*>(&length), 8);
  return bytes.append(payload);
}

const std::string kHello = frame(201, std::string(32, 'c') + "\x04rank3 of 4");

TEST(Handshake, BothEndsProveTheSecretAndTheClaimAndTheAnswerArrive) {
  Claim heard;
  int socket = -1;
  const Watched listener([&](HandshakePeer& caller) {
    heard = caller.claim();
    socket = caller.welcome("come in");
    ::send(socket, "behind it", 9, MSG_NOSIGNAL);
  });
  const Connection own(listener.connect());
  EXPECT_EQ(introduce(own.socket, kSecret, kClaim, kLong), "come in");
  EXPECT_EQ(heard, kClaim);
  EXPECT_EQ(own.receive(9), "behind it") << "what follows is not taken by the handshake";
  ::close(socket);
}

TEST(Handshake, ARefusalSaysWhyAndWhetherToTryAgain) {
  const Watched listener(
      [](HandshakePeer& caller) { caller.refuse("the run has its hosts", true); });
  const Connection own(listener.connect());
  try {
    introduce(own.socket, kSecret, kClaim, kLong);
    FAIL() << "it was let in";
  } catch (const RefusedError& error) {
    EXPECT_STREQ(error.what(), "the run has its hosts");
    EXPECT_TRUE(error.may_retry());
  }
}

TEST(Handshake, WhoHasAnotherSecretIsToldSoAndLearnsNothingElse) {
  const Watched listener([](HandshakePeer&) { FAIL() << "somebody was let in"; });
  const Connection own(listener.connect());
  EXPECT_THROW(introduce(own.socket, std::string(64, 'b'), kClaim, kLong), OtherSecretError);
  EXPECT_EQ(own.receive(), "");
}

TEST(Handshake, AListeningEndWithoutTheSecretIsNotBelieved) {
  const Watched listener([](HandshakePeer&) {}, std::string(64, 'b'));
  const Connection other(listener.connect());
  EXPECT_THROW(introduce(other.socket, kSecret, kClaim, kLong), HandshakeError);
  // One that answers in the right form, with what it heard.
  const int listening = listen_on("127.0.0.1", 0);
  std::jthread liar([listening] {
    pollfd waiting{.fd = listening, .events = POLLIN, .revents = 0};
    ::poll(&waiting, 1, static_cast<int>(kLong.count()));
    const Connection peer(accept_from(listening));
    peer.receive(kHello.size());
    peer.send(frame(202, std::string(32, 'l')));
    const std::string proof = peer.receive(16 + 32).substr(16);
    peer.send(frame(204, proof + "wcome in"));
    peer.receive();
  });
  {
    const Connection own(connect_to("127.0.0.1", port_of(listening), kLong));
    EXPECT_THROW(introduce(own.socket, kSecret, kClaim, kLong), HandshakeError);
  }
  liar.join();
  ::close(listening);
}

TEST(Handshake, ARecordingOfAnotherHandshakeIsOfNoUse) {
  // What a member sends, word for word: to the same listening end, and to a fresh one.
  std::string recorded;
  const Watched listener([](HandshakePeer& caller) { ::close(caller.welcome()); });
  {
    const int listening = listen_on("127.0.0.1", 0);
    std::jthread relay([&] {
      pollfd waiting{.fd = listening, .events = POLLIN, .revents = 0};
      ::poll(&waiting, 1, static_cast<int>(kLong.count()));
      const Connection member(accept_from(listening)), there(listener.connect());
      const std::string hello = member.receive(16 + 32 + 11);
      there.send(hello);
      member.send(there.receive(16 + 32));
      const std::string proof = member.receive(16 + 32);
      recorded = hello + proof;
      there.send(proof);
      member.send(there.receive());
    });
    const Connection own(connect_to("127.0.0.1", port_of(listening), kLong));
    introduce(own.socket, kSecret, kClaim, kLong);
    relay.join();
    ::close(listening);
  }
  for (int again = 0; again < 2; ++again) {
    const Connection replay(listener.connect());
    replay.send(recorded);
    const std::string answer = replay.receive();
    EXPECT_EQ(answer.substr(16 + 32), frame(205, "")) << "a challenge, and that it is wrong";
  }
}

TEST(Handshake, AProofForOneRoleIsNoneForAnother) {
  const std::string secret = kSecret;
  ListeningSide side(secret);
  std::string challenge;
  const auto give = [&side](std::string_view bytes) {
    std::string told;
    while (!bytes.empty() && side.num_wanted() > 0) {
      const auto piece = bytes.substr(0, side.num_wanted());
      told += side.take(piece);
      bytes.remove_prefix(piece.size());
    }
    return told;
  };
  challenge = give(kHello).substr(16);
  const uint64_t length = 11;
  const auto proof_of = [&](const std::string& claim) {
    const Proof proof =
        hmac_sha256(secret, "slime handshake 1 c" + std::string(32, 'c') + challenge +
                                std::string(reinterpret_cast<const char*>(&length), 8) + claim);
    return std::string(reinterpret_cast<const char*>(proof.data()), proof.size());
  };
  ListeningSide same = side;
  EXPECT_EQ(give(frame(203, proof_of("\x04host3 of 4"))), frame(205, ""));
  EXPECT_EQ(side.state(), ListeningSide::State::kWrong);
  side = same;
  give(frame(203, proof_of("\x04rank3 of 4")));
  EXPECT_EQ(side.state(), ListeningSide::State::kProven) << "the test itself computes it rightly";
}

TEST(Handshake, WhatIsNoHandshakeIsClosedWithoutAWord) {
  const Watched listener([](HandshakePeer&) { FAIL() << "somebody was let in"; });
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(64, '\0'), frame(1, "task"),
        frame(203, std::string(32, 'p')), frame(201, "short"), frame(201, std::string(5'000, 'x')),
        frame(201, std::string(32, 'c').append("\xffrank"))}) {
    const Connection stranger(listener.connect());
    stranger.send(bytes);
    EXPECT_EQ(stranger.receive(), "") << bytes;
  }
}

TEST(Handshake, StrangersWhoSayNothingKeepNobodyOut) {
  const Watched listener([](HandshakePeer& caller) { ::close(caller.welcome("come in")); });
  std::vector<std::unique_ptr<Connection>> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(std::make_unique<Connection>(listener.connect()));
  for (int i = 0; i < 3; ++i) {
    const Connection own(listener.connect());
    EXPECT_EQ(introduce(own.socket, kSecret, kClaim, kLong), "come in");
  }
}

TEST(Handshake, WhoDoesNotAnswerIsNotWaitedForLonger) {
  const int listening = listen_on("127.0.0.1", 0);
  const Connection own(connect_to("127.0.0.1", port_of(listening), kLong));
  EXPECT_THAT([&] { introduce(own.socket, kSecret, kClaim, milliseconds(50)); },
              testing::ThrowsMessage<HandshakeError>(HasSubstr("did not answer in time")));
  ::close(listening);
}

}  // namespace
}  // namespace slime::net
