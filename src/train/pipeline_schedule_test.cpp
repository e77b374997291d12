#include "train/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>

namespace slime::train {
namespace {

std::vector<std::vector<Tick>> all_stages(const PipelineShape& shape,
                                          const std::vector<bool>& has_backward) {
  std::vector<std::vector<Tick>> stages;
  for (int stage = 0; stage < shape.stages; ++stage)
    stages.push_back(pipeline_ticks(shape, stage, has_backward));
  return stages;
}

/// "F0 F1 . B0": one word a tick, with the chunk behind where there are several.
std::string words_of(const std::vector<Tick>& ticks, bool shows_chunks = false) {
  std::string words;
  for (const Tick& tick : ticks) {
    if (!words.empty()) words += ' ';
    if (!tick.step) {
      words += '.';
      continue;
    }
    words += tick.step->direction == Direction::kForward ? 'F' : 'B';
    words += std::to_string(tick.step->micro_batch);
    if (shows_chunks) words += static_cast<char>('a' + tick.step->chunk);
  }
  return words;
}

TEST(PipelineSchedule, OfOneStageIsForwardAndBackwardInTurn) {
  EXPECT_EQ(words_of(pipeline_ticks({1, 1}, 0, {true, true, false})), "F0 B0 F1 B1 F2");
  EXPECT_TRUE(pipeline_ticks({1, 1}, 0, {}).empty());
}

TEST(PipelineSchedule, OfSeveralStagesHoldsOneMicroBatchForEachThatFollows) {
  const auto stages = all_stages({2, 1}, {true, true, true});
  EXPECT_EQ(words_of(stages[0]), "F0 F1 . B0 F2 B1 . B2");
  EXPECT_EQ(words_of(stages[1]), ". F0 B0 F1 B1 F2 B2 .");
}

TEST(PipelineSchedule, WithoutBackwardPassesIsAStream) {
  const auto stages = all_stages({3, 1}, {false, false});
  EXPECT_EQ(words_of(stages[0]), "F0 F1 . .");
  EXPECT_EQ(words_of(stages[2]), ". . F0 F1");
}

TEST(PipelineSchedule, InterleavedGoesThroughTheFirstChunksFirst) {
  const auto stages = all_stages({2, 2}, {true, true, true, true});
  EXPECT_TRUE(words_of(stages[0], true).starts_with("F0a F1a F0b F1b"))
      << words_of(stages[0], true);
  // The bubble is smaller than that of two stages which compute both chunks at once.
  const auto plain = all_stages({2, 1}, {true, true, true, true});
  EXPECT_LE(stages[0].size(), 2 * plain[0].size() - 1);
}

/// Each step once, after what it reads; both ends of each message in one tick and in one order; no
/// more passes held than the stages need.
void expect_sound(const PipelineShape& shape, const std::vector<bool>& has_backward) {
  const auto stages = all_stages(shape, has_backward);
  const int last = shape.stages * shape.chunks - 1;
  std::map<std::tuple<Direction, int64_t, int>, std::size_t> done;
  for (int s = 0; s < shape.stages; ++s) {
    ASSERT_EQ(stages[s].size(), stages[0].size());
    int64_t held = 0, most = 0;
    for (std::size_t t = 0; t < stages[s].size(); ++t) {
      const auto& step = stages[s][t].step;
      if (!step) continue;
      const bool is_new =
          done.emplace(
                  std::tuple(step->direction, step->micro_batch, step->chunk * shape.stages + s), t)
              .second;
      EXPECT_TRUE(is_new);
      if (!has_backward[step->micro_batch]) continue;
      held += step->direction == Direction::kForward ? 1 : -1;
      most = std::max(most, held);
    }
    EXPECT_EQ(held, 0);
    if (shape.chunks == 1) {
      EXPECT_LE(most, shape.stages - s);
    }
  }
  std::size_t count = 0;
  for (const bool backward : has_backward) count += (backward ? 2 : 1) * (last + 1);
  EXPECT_EQ(done.size(), count);
  for (const auto& [key, tick] : done) {
    const auto& [direction, micro_batch, range] = key;
    if (direction == Direction::kForward && range > 0) {
      EXPECT_LT((done.at({direction, micro_batch, range - 1})), tick);
    }
    if (direction == Direction::kBackward) {
      EXPECT_LT((done.at({Direction::kForward, micro_batch, range})), tick);
      if (range < last) {
        EXPECT_LT((done.at({direction, micro_batch, range + 1})), tick);
      }
    }
  }
  for (std::size_t t = 0; t < stages[0].size(); ++t) {
    for (int a = 0; a < shape.stages; ++a) {
      for (int b = 0; b < shape.stages; ++b) {
        std::vector<PipelineStep> sent, received;
        for (const Transfer& transfer : stages[a][t].transfers)
          if (transfer.sends && transfer.peer == b) sent.push_back(transfer.step);
        for (const Transfer& transfer : stages[b][t].transfers)
          if (!transfer.sends && transfer.peer == a) received.push_back(transfer.step);
        EXPECT_EQ(sent, received);
      }
    }
  }
}

TEST(PipelineSchedule, IsSoundForEveryShape) {
  for (int stages = 1; stages <= 5; ++stages) {
    for (int chunks = 1; chunks <= 3; ++chunks) {
      for (int count = 0; count <= 9; ++count) {
        SCOPED_TRACE(::testing::Message() << stages << " x " << chunks << ", " << count);
        expect_sound({stages, chunks}, std::vector<bool>(count, true));
        std::vector<bool> some(count, true);
        for (int i = 0; i < count; i += 3) some[i] = false;
        expect_sound({stages, chunks}, some);
        expect_sound({stages, chunks}, std::vector<bool>(count, false));
      }
    }
  }
}

}  // namespace
}  // namespace slime::train
