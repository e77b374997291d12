#include "plugin/call_board.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace slime::plugin {
namespace {

using namespace std::chrono_literals;
using Steady = CallBoard::Steady;

/// The words of a host (python/slime/host/board.py).
constexpr std::size_t kHeldWord = 0, kUsedWord = 1, kLoopRegister = 2;
std::size_t slot_word(int slot) { return 2 + 64 * 2 + static_cast<std::size_t>(slot) * 4; }

int64_t nanoseconds(Steady::time_point when) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count();
}

/// The function of call `id` began at `when`.
void begin(CallBoard& board, int64_t id, int slot, Steady::time_point when) {
  board.set_word(slot_word(slot) + 1, nanoseconds(when));
  board.set_word(slot_word(slot) + 2, board.word(kHeldWord));
  board.set_word(slot_word(slot) + 3, 0);
  board.set_word(slot_word(slot), id);
}

void execute(CallBoard& board, int64_t id, Steady::time_point since) {
  board.set_word(kLoopRegister, id);
  board.set_word(kLoopRegister + 1, nanoseconds(since));
}

double seconds(const std::optional<std::chrono::duration<double>>& time) {
  return time.value_or(std::chrono::duration<double>(-1)).count();
}

TEST(CallBoard, AFunctionThatHasNotBegunHasNoTime) {
  CallBoard board;
  const int slot = board.take_slot().value();
  EXPECT_FALSE(board.time_of(7, slot, Steady::now()));
  const auto now = Steady::now();
  begin(board, 7, slot, now - 2s);
  EXPECT_NEAR(seconds(board.time_of(7, slot, now)), 2, 1e-6);
  EXPECT_FALSE(board.time_of(8, slot, now)) << "another call has stood there";
}

TEST(CallBoard, TimeInWhichOthersHeldTheLoopDoesNotCount) {
  CallBoard board;
  const int slot = board.take_slot().value();
  const auto now = Steady::now();
  board.set_word(kHeldWord, 1'000'000'000);  // before it began
  begin(board, 7, slot, now - 10s);
  board.set_word(kHeldWord, 5'000'000'000);            // 4 s since then
  board.set_word(slot_word(slot) + 3, 1'000'000'000);  // of which 1 s was its own
  EXPECT_NEAR(seconds(board.time_of(7, slot, now)), 10 - 3, 1e-6);
  execute(board, 9, now - 2s);  // another one does so now
  EXPECT_NEAR(seconds(board.time_of(7, slot, now)), 10 - 3 - 2, 1e-6);
  execute(board, 9, now - 20ms);
  EXPECT_NEAR(seconds(board.time_of(7, slot, now)), 10 - 3, 1e-6) << "a short stretch is nothing";
  execute(board, 7, now - 2s);
  EXPECT_NEAR(seconds(board.time_of(7, slot, now)), 10 - 3, 1e-6) << "its own counts";
}

TEST(CallBoard, NamesWhatEachThreadExecutes) {
  CallBoard board;
  EXPECT_TRUE(board.executing().empty());
  execute(board, 4, Steady::now());
  board.set_word(kLoopRegister + 2, 5);   // the thread for functions of a step
  board.set_word(kLoopRegister + 20, 4);  // a thread that call 4 started
  board.set_word(kLoopRegister + 22, 6);
  EXPECT_EQ(board.executing(), (std::vector<int64_t>{4, 5, 6}));
  const auto now = Steady::now();
  execute(board, 4, now - 3s);
  EXPECT_NEAR(board.holds_for(4, now).count(), 3, 1e-6);
  EXPECT_GT(board.holds_for(5, now).count(), 0);
  EXPECT_EQ(board.holds_for(6, now).count(), 0) << "a thread of the user's own holds up nobody";
}

TEST(CallBoard, SlotsComeToAnEndAndComeBack) {
  CallBoard board;
  std::vector<int> slots;
  while (const auto slot = board.take_slot()) slots.push_back(*slot);
  EXPECT_EQ(slots.size(), 4096U);
  board.release_slot(slots.back());
  EXPECT_EQ(board.take_slot(), slots.back());
}

TEST(CallBoard, KeepsWholeFramesWhateverFollowsThem) {
  CallBoard board;
  EXPECT_TRUE(board.unsent_answers().empty());
  const auto frame = [](uint32_t type, const std::string& payload) {
    const uint64_t length = payload.size();
    std::string bytes = "SLMF";
    bytes.append(reinterpret_cast<const char*>(&type), sizeof type);
    bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
    return bytes + payload;
  };
  const auto put = [&](const std::string& bytes) {
    std::memcpy(board.outbox_for_tests(), bytes.data(), bytes.size());
    board.set_word(kUsedWord, static_cast<int64_t>(bytes.size()));
  };
  const std::string two = frame(4, "first") + frame(4, "2nd");
  put(two);
  ASSERT_EQ(board.unsent_answers().size(), 2U);
  EXPECT_EQ(board.unsent_answers()[1].payload, "2nd");
  put(two.substr(0, two.size() - 1));
  EXPECT_EQ(board.unsent_answers().size(), 1U) << "the second is cut off";
  put("nonsense that is no frame");
  EXPECT_TRUE(board.unsent_answers().empty());
  for (const int64_t odd : {int64_t{-1}, int64_t{1} << 60}) {
    board.set_word(kUsedWord, odd);
    EXPECT_TRUE(board.unsent_answers().empty()) << odd;
  }
}

}  // namespace
}  // namespace slime::plugin
