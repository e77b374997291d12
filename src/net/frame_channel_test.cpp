#include "net/frame_channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <thread>

namespace slime::net {
namespace {

constexpr std::chrono::milliseconds kSoon{5000};

struct Pair {
  explicit Pair(uint64_t limit_bytes = 1 << 20) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    left = std::make_unique<FrameChannel>(ends[0]);
    right = std::make_unique<FrameChannel>(ends[1], limit_bytes);
  }
  std::unique_ptr<FrameChannel> left, right;
};

TEST(FrameChannel, CarriesFramesInOrderWhateverTheirSize) {
  Pair pair(1 << 25);
  const std::string large(5'000'001, 'x');
  std::thread sender([&] {
    EXPECT_TRUE(pair.left->send(7, "", kSoon));
    EXPECT_TRUE(pair.left->send(8, large, kSoon));
    EXPECT_TRUE(pair.left->send(9, "end", kSoon));
  });
  const auto empty = pair.right->receive(), middle = pair.right->receive(),
             last = pair.right->receive();
  sender.join();
  ASSERT_TRUE(empty && middle && last);
  EXPECT_EQ(empty->type, 7u);
  EXPECT_EQ(empty->payload, "");
  EXPECT_EQ(middle->payload, large);
  EXPECT_EQ(last->type, 9u);
  EXPECT_EQ(last->payload, "end");
}

TEST(FrameChannel, AFrameThatIsReceivedAloneLeavesTheNextOneInTheSocket) {
  Pair pair;
  EXPECT_TRUE(pair.left->send(1, "first", kSoon));
  EXPECT_TRUE(pair.left->send(2, "", kSoon));
  EXPECT_TRUE(pair.left->send(3, "third", kSoon));
  EXPECT_EQ(pair.right->receive_alone()->payload, "first");
  EXPECT_EQ(pair.right->receive_alone()->type, 2u);
  FrameChannel next_owner(pair.right->release());
  EXPECT_EQ(next_owner.receive()->payload, "third");
  pair.left.reset();
  EXPECT_FALSE(next_owner.receive_alone());
}

TEST(FrameChannel, APeerThatClosesEndsTheStreamAfterItsLastFrame) {
  Pair pair;
  EXPECT_TRUE(pair.left->send(1, "bye", kSoon));
  pair.left.reset();
  ASSERT_TRUE(pair.right->receive().has_value());
  EXPECT_FALSE(pair.right->receive().has_value());
  EXPECT_FALSE(pair.right->send(1, "hello?", kSoon));
}

TEST(FrameChannel, RefusesWhatIsNoFrameAndWhatIsTooLong) {
  Pair pair(100);
  ASSERT_EQ(::write(pair.left->descriptor(), "GET / HTTP/1.1\r\n\r\n", 18), 18);
  EXPECT_THROW(pair.right->receive(), FrameError);
  Pair other(100);
  EXPECT_TRUE(other.left->send(1, std::string(101, 'x'), kSoon));
  EXPECT_THROW(other.right->receive(), FrameError);
}

TEST(FrameChannel, APeerThatDoesNotReadIsAnErrorAfterTheDeadline) {
  Pair pair;
  const std::string large(std::size_t{1} << 24, 'x');
  EXPECT_THROW(pair.left->send(1, large, std::chrono::milliseconds(20)), FrameError);
}

/// A stream that is never read to its end between two frames: what was taken does not pile up.
TEST(FrameChannel, FramesThatOverlapTheReadsArriveWhole) {
  Pair pair(1 << 25);
  constexpr int kFrames = 300;
  std::thread sender([&] {
    for (int i = 0; i < kFrames; ++i)
      EXPECT_TRUE(pair.left->send(static_cast<uint32_t>(i),
                                  std::string(70'001 + i, static_cast<char>(i)), kSoon));
  });
  for (int i = 0; i < kFrames; ++i) {
    const auto frame = pair.right->receive();
    ASSERT_TRUE(frame);
    EXPECT_EQ(frame->type, static_cast<uint32_t>(i));
    EXPECT_EQ(frame->payload, std::string(70'001 + i, static_cast<char>(i)));
  }
  sender.join();
}

TEST(FrameChannel, ShuttingDownEndsWhatWaits) {
  Pair pair;
  std::thread waits([&] { EXPECT_FALSE(pair.right->receive().has_value()); });
  pair.right->shut_down();
  waits.join();
  EXPECT_FALSE(pair.left->send(1, "x", kSoon));
}

}  // namespace
}  // namespace slime::net
