#include "train/pipeline_schedule.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "core/error.h"

namespace slime::train {
namespace {

/// A step and the range of layers it goes through, of all stages'.
using Key = std::tuple<Direction, int64_t, int>;

struct Stage {
  std::vector<PipelineStep> forward, backward;  // in their order
  std::size_t num_forward = 0;                  // done
  std::size_t num_backward = 0;
  int64_t in_flight = 0;  // begun, with a backward pass that is to come
  int64_t limit = 1;      // of those
  std::vector<Tick> ticks;
};

/// Groups of micro-batches, as many as there are stages, go through one chunk after the other.
std::vector<PipelineStep> order_of(const PipelineShape& shape, Direction direction,
                                   const std::vector<bool>& has_backward) {
  const auto count = static_cast<int64_t>(has_backward.size());
  const int64_t group = shape.chunks > 1 ? shape.stages : count;
  std::vector<PipelineStep> order;
  for (int64_t begin = 0; begin < count; begin += group) {
    for (int c = 0; c < shape.chunks; ++c) {
      const bool is_forward = direction == Direction::kForward;
      for (int64_t i = begin; i < std::min(count, begin + group); ++i) {
        if (is_forward || has_backward[static_cast<std::size_t>(i)])
          order.push_back({direction, i, is_forward ? c : shape.chunks - 1 - c});
      }
    }
  }
  return order;
}

class Simulation final {
 public:
  Simulation(const PipelineShape& shape, const std::vector<bool>& has_backward)
      : shape_(shape),
        has_backward_(has_backward),
        stages_(static_cast<std::size_t>(shape.stages)) {
    for (int s = 0; s < shape.stages; ++s) {
      Stage& stage = stages_[static_cast<std::size_t>(s)];
      stage.forward = order_of(shape, Direction::kForward, has_backward);
      stage.backward = order_of(shape, Direction::kBackward, has_backward);
      const int64_t behind = shape.stages - s - 1;
      stage.limit = shape.chunks == 1 ? behind + 1
                                      : 2 * behind + int64_t{shape.chunks - 1} * shape.stages + 1;
    }
  }

  std::vector<Tick> run(int stage) {
    while (std::ranges::any_of(stages_, [](const Stage& s) {
      return s.num_forward < s.forward.size() || s.num_backward < s.backward.size();
    })) {
      if (!tick(/*goes_ahead=*/false)) check(tick(/*goes_ahead=*/true), "a pipeline goes on");
    }
    return std::move(stages_[static_cast<std::size_t>(stage)].ticks);
  }

 private:
  int range_of(int stage, const PipelineStep& step) const {
    return step.chunk * shape_.stages + stage;
  }
  int last_range() const { return shape_.stages * shape_.chunks - 1; }

  bool is_ready(int stage, const PipelineStep& step) const {
    const int range = range_of(stage, step);
    if (step.direction == Direction::kForward)
      return range == 0 || done_.contains({Direction::kForward, step.micro_batch, range - 1});
    if (range == last_range())
      return done_.contains({Direction::kForward, step.micro_batch, range});
    return done_.contains({Direction::kBackward, step.micro_batch, range + 1});
  }

  std::optional<PipelineStep> next_of(int index, bool goes_ahead) const {
    const Stage& stage = stages_[static_cast<std::size_t>(index)];
    const auto ready = [&](const std::vector<PipelineStep>& order,
                           std::size_t place) -> std::optional<PipelineStep> {
      if (place < order.size() && is_ready(index, order[place])) return order[place];
      return std::nullopt;
    };
    const auto forward = ready(stage.forward, stage.num_forward);
    const auto backward = ready(stage.backward, stage.num_backward);
    const bool is_full = stage.in_flight >= stage.limit;
    const bool has_forward = stage.num_forward < stage.forward.size();
    if (is_full || !has_forward) return backward || !goes_ahead ? backward : forward;
    return forward || !goes_ahead ? forward : backward;
  }

  /// Whether a stage had something to do.
  bool tick(bool goes_ahead) {
    std::vector<std::optional<PipelineStep>> steps;
    bool has_step = false;
    for (int s = 0; s < shape_.stages; ++s) {
      steps.push_back(next_of(s, goes_ahead && !has_step));
      has_step |= steps.back().has_value();
    }
    if (!has_step) return false;
    for (int s = 0; s < shape_.stages; ++s) {
      Stage& stage = stages_[static_cast<std::size_t>(s)];
      stage.ticks.push_back({steps[static_cast<std::size_t>(s)], {}});
    }
    for (int s = 0; s < shape_.stages; ++s) {
      if (const auto& step = steps[static_cast<std::size_t>(s)]) finish(s, *step);
    }
    return true;
  }

  void finish(int index, const PipelineStep& step) {
    Stage& stage = stages_[static_cast<std::size_t>(index)];
    const int range = range_of(index, step);
    done_.insert({step.direction, step.micro_batch, range});
    const bool is_forward = step.direction == Direction::kForward;
    if (is_forward) {
      ++stage.num_forward;
      if (has_backward_[static_cast<std::size_t>(step.micro_batch)]) ++stage.in_flight;
    } else {
      ++stage.num_backward;
      --stage.in_flight;
    }
    const int reader = is_forward ? range + 1 : range - 1;
    if (reader < 0 || reader > last_range()) return;
    const int peer = reader % shape_.stages;
    const PipelineStep reads{step.direction, step.micro_batch, reader / shape_.stages};
    if (peer == index) return;
    stage.ticks.back().transfers.push_back({true, peer, reads, step});
    stages_[static_cast<std::size_t>(peer)].ticks.back().transfers.push_back(
        {false, index, reads, step});
  }

  PipelineShape shape_;
  const std::vector<bool>& has_backward_;
  std::vector<Stage> stages_;
  std::set<Key> done_;
};

}  // namespace

std::vector<Tick> pipeline_ticks(const PipelineShape& shape, int stage,
                                 const std::vector<bool>& has_backward) {
  return Simulation(shape, has_backward).run(stage);
}

}  // namespace slime::train
