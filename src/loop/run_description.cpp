#include "loop/run_description.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <utility>

#include "config/secrets.h"
#include "loop/changed_settings.h"
#include "loop/start_point.h"
#include "model/config.h"
#include "report/run_history.h"

namespace slime::loop {
namespace {

int64_t num_parameters(const model::ModelConfig& model) {
  return model::make_blank_network(model, {.device = at::kMeta})->weights().num_parameters();
}

/// Rows of the data set that are not trained, by reason.
json::object left_out(const Stations& run) {
  json::object counts;
  if (!run.data.rows()) return counts;
  for (const auto& [reason, count] : run.data.rows()->left_out()) counts[reason] = count;
  if (run.data.rows()->num_too_long() > 0)
    counts["prompt_longer_than_max_prompt_len"] = run.data.rows()->num_too_long();
  return counts;
}

/// All starts of the run so far, this one last; `known`: run.json as it was. Its flags stand there where they differ from those
/// of the one before.
json::array starts_of(const Stations& run, const json::object& known) {
  json::array starts;
  json::object flags_before;
  if (const json::value* flags = known.if_contains("flags"); flags != nullptr && flags->is_object())
    flags_before = flags->get_object();
  if (const json::value* before = known.if_contains("starts");
      before != nullptr && before->is_array())
    starts = before->get_array();
  if (starts.empty() && !flags_before.empty())
    starts.push_back(json::object{{"first_rollout", 0}, {"flags", flags_before}});
  json::object now{{"time", run.launch.clock.unix_seconds()},
                   {"first_rollout", run.course.schedule.first_step},
                   {"epoch", run.launch.identity.epoch},
                   {"weights", run.course.start.weights}};
  json::object flags = config::changed_flags(run.config);
  if (starts.empty() || flags != flags_before) now["flags"] = std::move(flags);
  starts.push_back(std::move(now));
  return starts;
}

/// What the run began with, also after it has gone on.
json::object beginning(const Stations& run, const json::object& known) {
  if (!run.course.start.is_own) return beginning_of(run.config);
  const json::value* began = known.if_contains(kBeganWith);
  return began != nullptr && began->is_object() ? began->get_object() : json::object();
}

}  // namespace

json::object describe(const Stations& run, const json::object& unknown) {
  const json::object known = report::read_history(run.records.folder).run;
  return {{"run_id", run.course.start.run_id},
          {"branch", run.records.folder.branch()},
          {"starts", starts_of(run, known)},
          {kBeganWith, beginning(run, known)},
          {"model", run.config.hf_checkpoint},
          {"model_type", run.topology.model.model_type},
          {"num_parameters", num_parameters(run.topology.model)},
          {"dtype", run.config.dtype},
          {"num_rollout", run.course.schedule.num_steps},
          {"loss_type", run.config.loss_type},
          {"trainer_threads", at::get_num_threads()},
          {"left_out", left_out(run)},
          {"flags", config::changed_flags(run.config)},
          {"unknown_flags", config::without_secrets(unknown)}};
}

}  // namespace slime::loop
