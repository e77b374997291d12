#include "report/metric_writer.h"

#include "setup/periodic.h"

namespace slime::report {

MetricWriter::MetricWriter(const config::RunConfig& config, const RunFolder& folder,
                           int64_t first_step, const json::object& run, const Clock& clock)
    : plots_train_steps_(config.wandb_always_use_train_step),
      samples_per_rollout_(config.samples_per_rollout()),
      samples_per_step_(config.samples_per_step()),
      tracker_(folder.root(), first_step, clock) {
  if (config.use_wandb)
    wandb_ = std::make_unique<WandbProcess>(config, folder.root().string(), run);
}

void MetricWriter::write(int64_t step, const Metrics& metrics) {
  tracker_.write(step, metrics);
  if (wandb_ == nullptr) return;
  const int64_t plotted =
      setup::plotted_step(step, plots_train_steps_, samples_per_rollout_, samples_per_step_);
  wandb_->write(with_step_axes(metrics, plotted));
}

}  // namespace slime::report
