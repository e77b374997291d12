#include "report/metric_writer.h"

#include "report/run_files.h"
#include "setup/periodic.h"

namespace slime::report {

MetricWriter::MetricWriter(const config::RunConfig& config, const RunFolder& folder,
                           int64_t first_step, const json::object& run, const Clock& clock,
                           const std::function<void(const std::string&)>& tell)
    : plots_train_steps_(config.wandb_always_use_train_step),
      samples_per_rollout_(config.samples_per_rollout()),
      samples_per_step_(config.samples_per_step()),
      tracker_(folder.root(), first_step, clock,
               flags_in(run) != nullptr ? *flags_in(run) : json::object()) {
  for (const std::string& name : config.report_to.get())
    others_.push_back(
        std::make_unique<TrackerProcess>(name, config, folder.root().string(), run, tell));
}

void MetricWriter::write(int64_t step, const Metrics& metrics, const StepDetails& details) {
  tracker_.write(step, metrics, details);
  if (others_.empty()) return;
  const int64_t plotted =
      setup::plotted_step(step, plots_train_steps_, samples_per_rollout_, samples_per_step_);
  const Metrics with_axes = with_step_axes(metrics, plotted);
  for (const auto& tracker : others_) tracker->write(plotted, with_axes, details);
}

}  // namespace slime::report
