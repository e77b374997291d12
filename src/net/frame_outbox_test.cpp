#include "net/frame_outbox.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <future>
#include <memory>

namespace slime::net {
namespace {

struct Connected {
  Connected() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    left = std::make_unique<FrameChannel>(ends[0]);
    right = std::make_unique<FrameChannel>(ends[1]);
  }
  std::unique_ptr<FrameChannel> left, right;
};

void expect_no_failure(const std::string& why) { ADD_FAILURE() << why; }

TEST(FrameOutbox, SendsInTheOrderOfPostingAndMakesWhatIsMadeLate) {
  Connected pair;
  FrameOutbox outbox(*pair.left, {}, expect_no_failure);
  std::string late = "early";
  const std::string large(3'000'000, 'x');  // more than a socket takes at once
  EXPECT_TRUE(outbox.post(1, large));
  EXPECT_TRUE(outbox.post_made(2, [&late] { return late; }));
  EXPECT_TRUE(outbox.post(3, "last"));
  late = "made when its turn comes";  // nobody has read the first one yet
  EXPECT_EQ(pair.right->receive()->payload, large);
  EXPECT_EQ(pair.right->receive()->payload, late);
  EXPECT_EQ(pair.right->receive()->type, 3u);
}

TEST(FrameOutbox, WhatWaitsHasABoundAndALargeFrameGoesAlone) {
  Connected pair;
  FrameOutbox outbox(*pair.left, {.limit_bytes = 1000}, expect_no_failure);
  EXPECT_TRUE(outbox.post(1, std::string(2'000'000, 'a')));
  EXPECT_FALSE(outbox.post(1, "b"));
  EXPECT_TRUE(outbox.post_made(2, [] { return "c"; }));
  auto waits = std::async(std::launch::async, [&] { return outbox.post_when_room(3, "d"); });
  EXPECT_EQ(pair.right->receive()->payload.size(), 2'000'000u);
  EXPECT_EQ(pair.right->receive()->payload, "c");
  EXPECT_TRUE(waits.get());
  EXPECT_EQ(pair.right->receive()->payload, "d");
}

TEST(FrameOutbox, APeerThatIsGoneOrDoesNotReadIsToldOnce) {
  for (const bool is_gone : {true, false}) {
    Connected pair;
    std::promise<std::string> failed;
    FrameOutbox outbox(*pair.left, {.send_limit = std::chrono::milliseconds(20)},
                       [&](const std::string& why) { failed.set_value(why); });
    if (is_gone) pair.right.reset();
    EXPECT_TRUE(outbox.post(1, std::string(3'000'000, 'x')));
    const std::string why = failed.get_future().get();
    EXPECT_NE(why.find(is_gone ? "gone" : "not taken"), std::string::npos) << why;
    EXPECT_FALSE(outbox.post(1, "y"));
    EXPECT_FALSE(outbox.post_when_room(1, "y"));
    EXPECT_FALSE(outbox.post_made(1, [] { return "y"; }));
  }
}

TEST(FrameOutbox, EndsWhileAFrameIsBeingSentOnceTheChannelIsShutDown) {
  Connected pair;
  std::promise<void> failed;
  FrameOutbox outbox(*pair.left, {}, [&](const std::string&) { failed.set_value(); });
  EXPECT_TRUE(outbox.post(1, std::string(3'000'000, 'x')));
  pair.left->shut_down();
  failed.get_future().wait();
}

}  // namespace
}  // namespace slime::net
