#include "net/peer_user.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "net/tcp.h"

namespace slime::net {
namespace {

constexpr std::chrono::milliseconds kPatience{5'000};

int accepted(int listening) {
  pollfd waiting{.fd = listening, .events = POLLIN, .revents = 0};
  ::poll(&waiting, 1, static_cast<int>(kPatience.count()));
  return accept_from(listening);
}

TEST(PeerUser, IsTheOneWhoHoldsTheOtherEndAndNobodyOnceItIsClosed) {
  const int listening = listen_on("127.0.0.1", 0);
  const int own = connect_to("127.0.0.1", port_of(listening), kPatience),
            peer = accepted(listening);
  EXPECT_EQ(user_of_peer(peer), ::geteuid());
  EXPECT_TRUE(is_own_user(user_of_peer(peer)));
  ASSERT_EQ(::send(own, "a request", 9, MSG_NOSIGNAL), 9);
  ::close(own);
  EXPECT_FALSE(user_of_peer(peer)) << "what is left of it would read as root's";
  ::close(peer);
  ::close(listening);
}

TEST(PeerUser, AnotherUserIsTold) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  const int listening = listen_on("127.0.0.1", 0), port = port_of(listening);
  const pid_t child = ::fork();
  if (child == 0) {
    bool is_well = ::setresuid(65'534, 65'534, 65'534) == 0;
    const int own = connect_to("127.0.0.1", port, kPatience);
    char byte = 0;
    is_well &= ::read(own, &byte, 1) == 0;  // until the test closes it
    ::_exit(is_well ? 0 : 1);
  }
  const int peer = accepted(listening);
  EXPECT_EQ(user_of_peer(peer), 65'534U);
  EXPECT_FALSE(is_own_user(user_of_peer(peer)));
  ::close(peer);
  ::close(listening);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace slime::net
