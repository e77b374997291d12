#include "loop/sampled_step.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "core/field_reader.h"

namespace slime::loop {

json::object to_json(const SampledStep& sampled) {
  json::array groups;
  for (const Group& group : sampled.collected.groups) {
    json::array samples;
    for (const Sample& sample : group.samples) samples.push_back(slime::to_json(sample));
    groups.push_back(json::object{{"group", group.ordinal}, {"samples", std::move(samples)}});
  }
  json::object metrics;
  for (const auto& [name, number] : sampled.collected.metrics) metrics[name] = number;
  json::object untrained;
  for (const auto& [cause, count] : sampled.collected.untrained.value_or(report::UntrainedTokens()))
    untrained[cause] = count;
  return {{"step", sampled.step},
          {"untrained", std::move(untrained)},
          {"masks_are_lost", sampled.collected.masks_are_lost},
          {"groups", std::move(groups)},
          {"metrics", std::move(metrics)},
          {"generated_tokens", sampled.collected.generated_tokens}};
}

SampledStep sampled_step_from_json(const json::object& object, std::string_view where) {
  const FieldReader fields =
      FieldReader(object, fmt::format("{}: sampled_step.", where)).required();
  SampledStep sampled{.step = *fields.integer("step", 0), .collected = {}};
  sampled.collected.generated_tokens = *fields.integer("generated_tokens", 0);
  for (const FieldReader& each : fields.list("groups")) {
    Group group{.ordinal = *each.required().integer("group", 0), .samples = {}};
    for (const FieldReader& sample : each.required().list("samples"))
      group.samples.push_back(sample_from_json(sample.raw(), where));
    sampled.collected.groups.push_back(std::move(group));
  }
  // Checkpoints of older programs do not have it.
  if (object.contains("untrained")) {
    const FieldReader untrained = *fields.fields("untrained");
    sampled.collected.untrained.emplace();
    for (const auto& each : untrained.raw())
      (*sampled.collected.untrained)[std::string(each.key())] = *untrained.integer(each.key());
    sampled.collected.masks_are_lost = *fields.boolean("masks_are_lost");
  }
  const FieldReader metrics = *fields.fields("metrics");
  for (const auto& metric : metrics.raw())
    sampled.collected.metrics[std::string(metric.key())] = *metrics.number(metric.key());
  return sampled;
}

std::optional<SampledStep> sampled_step_of(const train::Checkpoint& checkpoint) {
  const json::value* state = checkpoint.run.if_contains("drawn_step");
  if (state == nullptr || !state->is_object()) return std::nullopt;
  return sampled_step_from_json(state->get_object(), (checkpoint.directory / "run.json").string());
}

void let_wait(SampledStep sampled, buffer::DataSource& prompts, OutcomeLog& outcomes) {
  for (Group& group : sampled.collected.groups) {
    if (prompts.may_wait(group)) {
      prompts.add({std::move(group)});
    } else {
      outcomes.failed(group, "of a rollout function that this run does not have");
    }
  }
}

}  // namespace slime::loop
