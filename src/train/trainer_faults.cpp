/// The trainer's words for losses and gradients that are not finite: which samples they come from.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "comm/ordered_sum.h"
#include "kernels/device.h"
#include "train/bad_numbers.h"
#include "train/columns.h"
#include "train/trainer.h"

namespace slime::train {

std::string Trainer::describe_bad_loss(const TrainBatch& batch, const MicroBatch& micro_batch,
                                       const ScoredPass& pass, const Columns& columns,
                                       double loss) const {
  const NamedColumn causes[] = {
      {"the engine's log-prob", columns.engine.gather(micro_batch.samples)},
      {"the reference's log-prob", columns.ref.gather(micro_batch.samples)},
      {"the old log-prob", columns.old.gather(micro_batch.samples)},
      {"the advantage", columns.advantage.gather(micro_batch.samples)},
      {"the log-prob", pass.scores.logprob_R}};
  const std::string token = first_bad_token(batch, micro_batch, causes);
  return fmt::format("the loss of samples {} is {}{}", ordinals_of(batch, micro_batch.samples),
                     loss, token.empty() ? "" : ", first at " + token);
}

std::string Trainer::join_problems(const std::vector<std::string>& problems) {
  // Of ranks with the same samples the first one speaks.
  const bool speaks = mesh_.at().tp == 0 && mesh_.at().cp == 0;
  const std::string own = speaks ? fmt::format("{}", fmt::join(problems, "; ")) : "";
  if (mesh_.world().is_alone()) return own;
  std::vector<std::string> all;
  const std::vector<std::string> texts = mesh_.world().all_gather(own, "naming what is not finite");
  for (std::size_t r = 0; r < texts.size(); ++r) {
    if (!texts[r].empty()) all.push_back(fmt::format("rank {}: {}", r, texts[r]));
  }
  if (all.empty()) return "gradients that are not finite";  // finite on each rank, not their sum
  return fmt::format("{}", fmt::join(all, "; "));
}

std::string Trainer::trace_gradients(const TrainBatch& batch, const StepPlan& plan,
                                     Columns& columns) {
  if (has_experts() && mesh_.sizes().experts_join_samples())
    return "they may come from samples of any rank";  // whose rows meet at experts
  for (const MicroBatch& micro_batch : plan.micro_batches) {
    network_.trained().zero_grad();
    std::vector<std::string> ignored;
    accumulate(batch, {.micro_batches = {micro_batch}}, columns, ignored, false);
    const double squares = kernels::sum_of_squares(network_.trained().grad());
    if (std::isfinite(sum(mesh_.model(), squares, "looking for gradients that are not finite")))
      continue;
    return "they come from samples " + ordinals_of(batch, micro_batch.samples);
  }
  // Of several ranks another one is to blame.
  return ranks_.is_alone() ? "each micro-batch alone has finite ones" : "";
}

}  // namespace slime::train
