#pragma once

/// Thread blocks of kernels, run on the CPU: a fibre for each thread of a block, the blocks one after the other.
///
/// It is there to find mistakes, not to be fast. The sources of the kernels are compiled as C++
/// (kernels/cuda/vendor/cpu.cuh), and meet here at barriers of the block and where the 32 lanes of a group exchange
/// numbers. Lanes lie in waves of 32 or 64: a group is a whole wave, as on NVIDIA's GPUs, or half of one, as on AMD's.
/// Threads run from one meeting to the next in ascending order, or in descending order: a kernel that lacks a barrier
/// gives other numbers in one of the two.
///
/// Threads that have ended are not waited for. Where some threads of a group exchange while others wait at a
/// barrier of the block, which on a GPU is undefined, run() throws BugError.

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/block_executor/fibre.h"

namespace slime::kernels {

struct Extent {
  unsigned x = 1, y = 1, z = 1;
  unsigned count() const { return x * y * z; }
};

/// Indices of the running thread and its block, and the sizes of both.
struct ThreadPlace {
  Extent thread{0, 0, 0}, block{0, 0, 0}, block_size, grid_size;
};

class BlockExecutor {
 public:
  static constexpr unsigned kGroupLanes = 32;

  struct Options {
    unsigned wave_lanes = 32;  // or 64
    bool is_descending = false;
    // Mistakes, for tests of tests.
    /// An exchange with the lane at this distance is one at half of it. 0: none.
    unsigned mistaken_distance = 0;
    /// What is asked of this lane of a group comes from its neighbour. -1: none.
    int mistaken_lane = -1;
    /// Barriers of the block and of groups hold nobody up.
    bool passes_barriers = false;
    /// This thread of each block never runs. -1: none.
    int absent_thread = -1;
  };

  BlockExecutor() : BlockExecutor(Options{}) {}
  explicit BlockExecutor(Options options);
  ~BlockExecutor();

  /// Runs `kernel` as every thread of every block; what a thread throws is thrown from here. Dynamic shared memory
  /// is filled with the bytes 0xff before each block: floats in it are no numbers.
  void run(Extent grid, Extent block, size_t shared_bytes, const std::function<void()>& kernel);

  const Options& options() const { return options_; }

  // For the running thread.

  static BlockExecutor& current();
  static unsigned char* dynamic_shared_memory();
  static inline ThreadPlace place;

  void wait_for_block();
  /// True where it is for all threads of the block. A barrier of the block.
  bool all_of_block(bool is_true);
  unsigned lane_of_wave() const { return running_ % options_.wave_lanes; }
  /// Every lane of the group offers a word, and gets the one of a lane of its wave, which is in the group.
  uint64_t exchange(uint64_t offered, unsigned from_lane);
  /// A bit for each lane of the wave. Those of another group are what it was asked last.
  uint64_t ballot(bool is_true);
  void wait_for_group();
  /// Every lane of the wave offers a word and gets those of all, in the order of the lanes; of lanes that are not there,
  /// zeros. As a matrix instruction it has no part for some of the lanes: where one has ended it throws BugError.
  void gather_wave(uint64_t offered, uint64_t (&all)[64]);

 private:
  enum class State { kRuns, kAtBlock, kAtGroup, kAtWave, kEnded };
  struct Thread {
    State state = State::kRuns;
    unsigned exchanges = 0;
    uint64_t word[2] = {};  // offered in even and in odd exchanges
    unsigned wave_exchanges = 0;
    uint64_t wave_word[2] = {};  // likewise: groups of a wave are not equally far
  };

  void body();
  void run_block(Extent block);
  void prepare(unsigned index);
  /// Opens the barriers at which all that still run have arrived.
  void open_group(unsigned group);
  void open_wave(unsigned wave);
  void open_block();
  void wait(State state);
  /// To the group; returns when all of it have offered.
  void offer(uint64_t word);
  /// Switches to the next thread that can run, or back to run().
  void hand_over();

  const Options options_;
  std::unique_ptr<Fibre> caller_;
  std::vector<std::unique_ptr<Fibre>> fibres_;
  std::vector<Thread> threads_;
  std::vector<unsigned> group_live_, group_waiting_, wave_waiting_;
  unsigned block_live_ = 0, block_waiting_ = 0, running_ = 0;
  bool is_block_true_ = true, was_block_true_ = true;
  const std::function<void()>* kernel_ = nullptr;
  std::exception_ptr error_;
  std::vector<uint64_t> shared_;  // two words longer than asked for
};

}  // namespace slime::kernels
