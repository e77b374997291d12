#pragma once

/// Rank 0's StepRunner in an engine of several ranks: tells the followers what it is told, and computes
/// its own part with the runner of its device.
///
/// Who draws: all ranks. The logits of a step's rows are gathered on each (model::Network::logits), and
/// the draw is a function of them, the request and its seed alone. So the ranks learn the tokens without
/// being told, which on a device with its own clock would be one more message between two steps. Rank 0's
/// are told all the same, with the next step and when a step is collected: a rank that drew another token
/// says so and ends.
///
/// A step that fails here leaves the others in the middle of theirs: from then on every call throws
/// comm::GroupError, and the engine is lost.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/rank_group.h"
#include "engine/ranks/followers.h"
#include "engine/ranks/mirrored_step.h"
#include "engine/step_runner.h"

namespace slime::engine {

std::string to_frame(const StepRunnerConfig& config);
/// Throws net::FrameError.
StepRunnerConfig step_runner_config_from(std::string_view frame);

/// StepRunner::checksums_of() on one of several ranks, which all do it together; the result is rank 0's.
WeightChecksums checksums_of_rank(model::Weights& weights, bool resets, comm::RankGroup& ranks);

/// What ranks say they do while each gives its keys' and values' memory back.
inline constexpr const char* kReleasing = "the engine's ranks give memory back";

class LeadingRunner final : public StepRunner {
 public:
  using OnLost = std::function<void(const std::string&)>;

  /// `own`: of rank 0's slices, made with `config`, which goes to the others. `followers` and `ranks`, on
  /// which they meet, outlive the object. `on_lost`, where there is one, is called with the reason when the ranks are out of step, on
  /// the thread that notices, and need not return.
  LeadingRunner(std::unique_ptr<StepRunner> own, Followers& followers, comm::RankGroup& ranks,
                const StepRunnerConfig& config, OnLost on_lost = {});

  void copy_page(PageId from, PageId to) override;
  void copy_state(StateId from, StateId to) override;
  bool launch(std::span<const Chunk> chunks) override;
  bool was_usual_launch() const override { return own_->was_usual_launch(); }
  std::vector<std::optional<kernels::SampledToken>> collect() override;
  std::vector<kernels::SampledToken> take_scores(std::size_t chunk) override {
    return own_->take_scores(chunk);
  }
  bool verifies_drafts() const override { return own_->verifies_drafts(); }
  bool verifies_drafts_of(const Request& request) const override {
    return own_->verifies_drafts_of(request);
  }
  std::vector<kernels::SampledToken> take_behind_drafts(std::size_t chunk) override {
    return own_->take_behind_drafts(chunk);
  }
  bool has_exact_steps() const override { return own_->has_exact_steps(); }
  bool has_draft_layer() const override { return own_->has_draft_layer(); }
  std::vector<Draft> take_foretold(std::size_t chunk) override {
    return own_->take_foretold(chunk);
  }
  Expected<void> load_elsewhere(const std::filesystem::path& directory) override;
  Expected<void> change_elsewhere(const model::TensorUpdate& update, const model::Weights& changed,
                                  bool begins) override;
  void copy_weights(const FreshWeights& fresh) override;
  void exchange_network(model::Network& network) override;
  double wait_for_weights() override { return own_->wait_for_weights(); }
  WeightChecksums checksums_of(model::Weights& weights, bool resets) override;
  void reset() override;
  void release_memory() override;
  void resume_memory() override;
  at::ScalarType kv_dtype() const override { return own_->kv_dtype(); }
  void append_experts(const CachedRows& rows, std::vector<int16_t>& out) const override {
    own_->append_experts(rows, out);
  }

 private:
  void send_changes(const model::TensorUpdate& update, const model::Weights& changed);
  /// Whatever fails in it leaves the ranks out of step.
  template <typename Fn>
  auto in_step(const Fn& body);
  /// What concerns all ranks: they are told, then it is done here.
  template <typename Fn>
  auto together(RankOrder order, const std::string& payload, const Fn& own);

  std::unique_ptr<StepRunner> own_;
  Followers& followers_;
  comm::RankGroup& ranks_;
  const OnLost on_lost_;
  StepFrames steps_;
  std::optional<std::string> lost_;  // why the ranks are out of step
};

}  // namespace slime::engine
