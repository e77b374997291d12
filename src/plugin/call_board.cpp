#include "plugin/call_board.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string_view>

#include "core/error.h"

namespace slime::plugin {
namespace {

constexpr std::size_t kHeaderWords = 2;
constexpr std::size_t kRegisters = 64;
constexpr std::size_t kRegisterWords = 2;
constexpr std::size_t kThreadsOfCalls =
    2;                                // the event loop, and the thread for functions of a step
constexpr std::size_t kSlots = 4096;  // calls in flight, and those that nobody waits for
constexpr std::size_t kSlotWords = 4;
constexpr std::size_t kOutboxBytes = std::size_t{16} << 20;
constexpr std::size_t kSlotsBegin = kHeaderWords + kRegisters * kRegisterWords;
constexpr std::size_t kWords = kSlotsBegin + kSlots * kSlotWords;
constexpr std::size_t kOutboxBegin = kWords * sizeof(int64_t);
constexpr std::size_t kFrameHead = 16;

constexpr int64_t kHeld = 50'000'000;  // HELD_NS of the host

int64_t nanoseconds_of(CallBoard::Steady::time_point when) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count();
}

}  // namespace

CallBoard::CallBoard() : memory_(static_cast<int64_t>(kOutboxBegin + kOutboxBytes)) {
  for (int slot = static_cast<int>(kSlots) - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

json::object CallBoard::layout() const {
  return {{"registers", kRegisters}, {"slots", kSlots}, {"outbox_bytes", kOutboxBytes}};
}

std::optional<int> CallBoard::take_slot() {
  if (free_slots_.empty()) return std::nullopt;
  const int slot = free_slots_.back();
  free_slots_.pop_back();
  set_word(kSlotsBegin + static_cast<std::size_t>(slot) * kSlotWords, 0);
  return slot;
}

void CallBoard::release_slot(int slot) { free_slots_.push_back(slot); }

int64_t CallBoard::word(std::size_t index) const {
  check(index < kWords, "a word of the board");
  auto* words = reinterpret_cast<int64_t*>(memory_.data());
  return std::atomic_ref<int64_t>(words[index]).load(std::memory_order_acquire);
}

void CallBoard::set_word(std::size_t index, int64_t value) {
  check(index < kWords, "a word of the board");
  auto* words = reinterpret_cast<int64_t*>(memory_.data());
  std::atomic_ref<int64_t>(words[index]).store(value, std::memory_order_release);
}

std::byte* CallBoard::outbox_for_tests() { return memory_.data() + kOutboxBegin; }

std::optional<std::chrono::duration<double>> CallBoard::time_of(int64_t id, int slot,
                                                                Steady::time_point now) const {
  const std::size_t begin = kSlotsBegin + static_cast<std::size_t>(slot) * kSlotWords;
  if (word(begin) != id) return std::nullopt;
  const int64_t at = nanoseconds_of(now);
  // Read before the sums: a stretch that ends meanwhile is counted twice, in favour of the call.
  const int64_t on_loop = word(kHeaderWords);
  const int64_t since = word(kHeaderWords + 1);
  const int64_t others = word(0) - word(begin + 2) - word(begin + 3);
  int64_t elapsed = at - word(begin + 1) - std::max<int64_t>(others, 0);
  const int64_t stretch = at - std::max(since, word(begin + 1));
  if (on_loop != 0 && on_loop != id && stretch > kHeld) elapsed -= stretch;
  return std::chrono::nanoseconds(std::max<int64_t>(elapsed, 0));
}

std::chrono::duration<double> CallBoard::holds_for(int64_t id, Steady::time_point now) const {
  for (std::size_t i = 0; i < kThreadsOfCalls; ++i) {
    const std::size_t at = kHeaderWords + i * kRegisterWords;
    const int64_t since = word(at + 1);
    if (word(at) == id)
      return std::chrono::nanoseconds(std::max<int64_t>(nanoseconds_of(now) - since, 1));
  }
  return {};
}

std::vector<int64_t> CallBoard::executing() const {
  std::vector<int64_t> ids;
  for (std::size_t i = 0; i < kRegisters; ++i) {
    const int64_t id = word(kHeaderWords + i * kRegisterWords);
    if (id != 0 && std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

std::vector<net::Frame> CallBoard::unsent_answers() const {
  const auto used = static_cast<uint64_t>(std::clamp<int64_t>(word(1), 0, kOutboxBytes));
  std::string_view rest(reinterpret_cast<const char*>(memory_.data()) + kOutboxBegin, used);
  std::vector<net::Frame> frames;
  while (rest.size() >= kFrameHead && rest.starts_with("SLMF")) {
    uint32_t type = 0;
    uint64_t length = 0;
    std::memcpy(&type, rest.data() + 4, sizeof type);
    std::memcpy(&length, rest.data() + 8, sizeof length);
    if (length > rest.size() - kFrameHead) break;
    frames.push_back({type, std::string(rest.substr(kFrameHead, length))});
    rest.remove_prefix(kFrameHead + length);
  }
  return frames;
}

}  // namespace slime::plugin
