#include "kernels/block_executor/block_executor.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace slime::kernels {
namespace {

BlockExecutor* running_executor = nullptr;
constexpr unsigned kMostThreads = 1024;

}  // namespace

BlockExecutor::BlockExecutor(Options options)
    : options_(options), caller_(std::make_unique<Fibre>()) {
  check(options.wave_lanes == 32 || options.wave_lanes == 64, "waves have 32 or 64 lanes");
}

BlockExecutor::~BlockExecutor() = default;

BlockExecutor& BlockExecutor::current() {
  check(running_executor != nullptr, "a kernel runs");
  return *running_executor;
}

unsigned char* BlockExecutor::dynamic_shared_memory() {
  const auto first = reinterpret_cast<uintptr_t>(current().shared_.data());
  return reinterpret_cast<unsigned char*>((first + 15) / 16 * 16);
}

void BlockExecutor::body() {
  while (true) {
    try {
      (*kernel_)();
    } catch (...) {
      if (error_ == nullptr) error_ = std::current_exception();
    }
    Thread& thread = threads_[running_];
    thread.state = State::kEnded;
    const unsigned group = running_ / kGroupLanes;
    --block_live_;
    --group_live_[group];
    open_group(group);
    open_block();
    hand_over();
  }
}

void BlockExecutor::run(Extent grid, Extent block, size_t shared_bytes,
                        const std::function<void()>& kernel) {
  check(block.count() >= 1 && block.count() <= kMostThreads,
        "blocks have one to 1024 threads, not " + std::to_string(block.count()));
  check(running_executor == nullptr, "kernels start no kernels");
  while (fibres_.size() < block.count())
    fibres_.push_back(std::make_unique<Fibre>([this] { body(); }));
  kernel_ = &kernel;
  place = {{0, 0, 0}, {0, 0, 0}, block, grid};
  running_executor = this;
  struct Leave {
    ~Leave() { running_executor = nullptr; }
  } leave;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        shared_.assign(shared_bytes / 8 + 3, ~uint64_t{0});
        place.block = {x, y, z};
        run_block(block);
      }
    }
  }
}

void BlockExecutor::run_block(Extent block) {
  const unsigned count = block.count(), groups = (count + kGroupLanes - 1) / kGroupLanes;
  threads_.assign(count, Thread{});
  group_live_.assign(groups, 0);
  group_waiting_.assign(groups, 0);
  wave_waiting_.assign((count + options_.wave_lanes - 1) / options_.wave_lanes, 0);
  for (unsigned i = 0; i < count; ++i) ++group_live_[i / kGroupLanes];
  block_live_ = count;
  block_waiting_ = 0;
  is_block_true_ = true;
  error_ = nullptr;
  unsigned first = options_.is_descending ? count - 1 : 0;
  const auto absent = static_cast<unsigned>(options_.absent_thread);
  if (options_.absent_thread >= 0 && absent < count) {
    threads_[absent].state = State::kEnded;
    --group_live_[absent / kGroupLanes];
    if (--block_live_ == 0) return;
    if (absent == first) first = options_.is_descending ? first - 1 : first + 1;
  }
  prepare(first);
  caller_->switch_to(*fibres_[first]);
  if (error_ == nullptr && block_live_ == 0) return;
  // Their stacks are given up as they are.
  fibres_.clear();
  if (error_ != nullptr) std::rethrow_exception(error_);
  const auto at = [&](State state) {
    return std::to_string(
        std::ranges::count_if(threads_, [&](const Thread& t) { return t.state == state; }));
  };
  throw BugError("threads wait for each other: " + at(State::kAtBlock) +
                 " at a barrier of the block, " + at(State::kAtGroup) +
                 " for lanes of their group, " + at(State::kAtWave) + " for lanes of their wave");
}

void BlockExecutor::prepare(unsigned index) {
  running_ = index;
  const Extent& size = place.block_size;
  place.thread = {index % size.x, index / size.x % size.y, index / (size.x * size.y)};
}

void BlockExecutor::open_group(unsigned group) {
  if (group_waiting_[group] == 0 || group_waiting_[group] < group_live_[group]) return;
  group_waiting_[group] = 0;
  const unsigned end = std::min<unsigned>((group + 1) * kGroupLanes, threads_.size());
  for (unsigned i = group * kGroupLanes; i < end; ++i)
    if (threads_[i].state == State::kAtGroup) threads_[i].state = State::kRuns;
}

void BlockExecutor::open_wave(unsigned wave) {
  const unsigned begin = wave * options_.wave_lanes,
                 end = std::min<unsigned>(begin + options_.wave_lanes, threads_.size());
  if (wave_waiting_[wave] < end - begin) return;
  wave_waiting_[wave] = 0;
  for (unsigned i = begin; i < end; ++i)
    if (threads_[i].state == State::kAtWave) threads_[i].state = State::kRuns;
}

void BlockExecutor::open_block() {
  if (block_waiting_ == 0 || block_waiting_ < block_live_) return;
  block_waiting_ = 0;
  was_block_true_ = is_block_true_;
  is_block_true_ = true;
  for (Thread& thread : threads_)
    if (thread.state == State::kAtBlock) thread.state = State::kRuns;
}

void BlockExecutor::hand_over() {
  const auto count = static_cast<unsigned>(threads_.size()), from = running_;
  Fibre& mine = *fibres_[from];
  if (error_ == nullptr) {
    for (unsigned i = 1; i <= count; ++i) {
      const unsigned next = (options_.is_descending ? from + count - i : from + i) % count;
      if (threads_[next].state != State::kRuns) continue;
      prepare(next);
      if (next != from) mine.switch_to(*fibres_[next]);
      return;
    }
  }
  mine.switch_to(*caller_);
}

void BlockExecutor::wait(State state) {
  const unsigned mine = running_;
  threads_[mine].state = state;
  if (state == State::kAtBlock) {
    ++block_waiting_;
    open_block();
  } else if (state == State::kAtWave) {
    ++wave_waiting_[mine / options_.wave_lanes];
    open_wave(mine / options_.wave_lanes);
  } else {
    ++group_waiting_[mine / kGroupLanes];
    open_group(mine / kGroupLanes);
  }
  hand_over();
}

void BlockExecutor::wait_for_block() {
  if (!options_.passes_barriers) wait(State::kAtBlock);
}

bool BlockExecutor::all_of_block(bool is_true) {
  is_block_true_ = is_block_true_ && is_true;
  wait(State::kAtBlock);
  return was_block_true_;
}

void BlockExecutor::wait_for_group() {
  if (!options_.passes_barriers) wait(State::kAtGroup);
}

void BlockExecutor::offer(uint64_t word) {
  // Two words in turn: whoever is ahead offers its next one before all have read this one.
  Thread& thread = threads_[running_];
  thread.word[++thread.exchanges % 2] = word;
  wait(State::kAtGroup);
}

uint64_t BlockExecutor::exchange(uint64_t offered, unsigned from_lane) {
  const unsigned mine = running_,
                 other = mine / options_.wave_lanes * options_.wave_lanes + from_lane;
  offer(offered);
  check(other / kGroupLanes == mine / kGroupLanes, "lanes exchange numbers within their group");
  // A lane that is not there, as in a block of 16 threads, has nothing; its number is not used.
  return other < threads_.size() ? threads_[other].word[threads_[mine].exchanges % 2] : 0;
}

void BlockExecutor::gather_wave(uint64_t offered, uint64_t (&all)[64]) {
  Thread& thread = threads_[running_];
  const unsigned turn = ++thread.wave_exchanges % 2;
  thread.wave_word[turn] = offered;
  const unsigned wave = running_ / options_.wave_lanes * options_.wave_lanes;
  wait(State::kAtWave);
  for (unsigned lane = 0; lane < 64; ++lane) {
    const bool is_mistaken = static_cast<int>(lane) == options_.mistaken_lane;
    const unsigned from = is_mistaken ? lane ^ 1U : lane;
    const bool is_there = from < options_.wave_lanes && wave + from < threads_.size();
    all[lane] = is_there ? threads_[wave + from].wave_word[turn] : 0;
  }
}

uint64_t BlockExecutor::ballot(bool is_true) {
  const unsigned mine = running_, wave = mine / options_.wave_lanes * options_.wave_lanes;
  offer(is_true ? 1 : 0);
  const unsigned exchanges = threads_[mine].exchanges;
  uint64_t bits = 0;
  for (unsigned lane = 0; lane < options_.wave_lanes && wave + lane < threads_.size(); ++lane) {
    const Thread& thread = threads_[wave + lane];
    const bool is_other = (wave + lane) / kGroupLanes != mine / kGroupLanes;
    // One that ended before has offered nothing.
    if (is_other || thread.exchanges >= exchanges)
      bits |= (thread.word[exchanges % 2] & 1U) << lane;
  }
  return bits;
}

}  // namespace slime::kernels
