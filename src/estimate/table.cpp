// What `slime plan` prints.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "estimate/plan.h"

namespace slime::estimate {
namespace {

using Buffer = std::back_insert_iterator<std::string>;

double gb(auto bytes) { return static_cast<double>(bytes) / 1e9; }

void print_head(const Plan& plan, Buffer out) {
  const PlanConfig& config = plan.config;
  const auto billions = [](int64_t parameters) { return static_cast<double>(parameters) / 1e9; };
  fmt::format_to(out, "A prediction: nothing was started, no weight was read.\n\n");
  fmt::format_to(out, "model     {}, {:.1f} billion parameters, {:.1f} active, {} layers\n",
                 plan.shape.model_type, billions(plan.shape.parameters()),
                 billions(plan.shape.active_parameters(config.model)), plan.shape.blocks.size());
  if (plan.shape.trains_adapters) {
    fmt::format_to(
        out,
        "adapters  {:.1f} million numbers in float32; the model's own have no gradients, "
        "moments or copy\n",
        static_cast<double>(plan.shape.adapters()) / 1e6);
  }
  fmt::format_to(
      out, "step      {} prompts x {} samples, {} + {} tokens in the mean: {} rows to train\n",
      config.workload.prompts, config.workload.samples, config.workload.prompt_tokens,
      config.workload.response_tokens, config.workload.rows());
  fmt::format_to(out, "trainers  {} device{}, {} a host, {:.0f} GB each: {}\n",
                 config.trainers.count(), config.trainers.count() == 1 ? "" : "s",
                 config.trainers.per_host, gb(config.rates.device_bytes),
                 to_words(plan.best().layout));
  fmt::format_to(out, "engines   {} of {} device{} each, {}\n",
                 plan.engines.devices / plan.engines.per_engine, plan.engines.per_engine,
                 plan.engines.per_engine == 1 ? "" : "s",
                 plan.engines.are_apart ? "on devices of their own" : "on the trainers' devices");
  if (!plan.refused_engine.empty()) {
    fmt::format_to(out, "          of {} devices an engine works; a run refuses others: {}\n",
                   fmt::join(plan.engine_sizes, " or "),
                   plan.refused_engine.substr(0, plan.refused_engine.find('\n')));
  }
  fmt::format_to(out, "\n");
}

int64_t layers_of(const Stage& stage) { return stage.end_layer - stage.first_layer; }

/// Neighbouring stages of as many layers share a row, the one that takes most.
void print_memory(const Plan& plan, Buffer out) {
  const auto& stages = plan.best().stages;
  fmt::format_to(out,
                 "GB of a trainer's device\n"
                 "  {:<7} {:<9} {:>8} {:>9} {:>9} {:>9} {:>11} {:>7} {:>7}\n",
                 "stage", "layers", "weights", "gradients", "optimizer", "reference", "activations",
                 "logits", "sum");
  for (size_t begin = 0, end = 0; begin < stages.size(); begin = end) {
    const int64_t num_layers = layers_of(stages[begin]);
    while (end < stages.size() && layers_of(stages[end]) == num_layers) ++end;
    const auto row = std::ranges::max_element(stages.begin() + static_cast<ptrdiff_t>(begin),
                                              stages.begin() + static_cast<ptrdiff_t>(end), {},
                                              [](const Stage& one) { return one.memory.peak(); });
    const TrainerMemory& memory = row->memory;
    const std::string which =
        end - begin == 1 ? fmt::format("{}", begin) : fmt::format("{}-{}", begin, end - 1);
    fmt::format_to(
        out, "  {:<7} {:<9} {:>8.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>11.1f} {:>7.1f} {:>7.1f}\n",
        which, num_layers, gb(memory.weights), gb(memory.gradients), gb(memory.optimizer),
        gb(memory.others), gb(memory.activations), gb(memory.logits), gb(memory.peak()));
  }
  fmt::format_to(out, "GB of an engine's device\n  weights {:.1f}", gb(plan.engine.weights));
  if (plan.engine.drafts > 0)
    fmt::format_to(out, ", {:.1f} of them to draft with", gb(plan.engine.drafts));
  if (plan.engine.staged > 0)
    fmt::format_to(out, ", second buffer for new ones {:.1f}", gb(plan.engine.staged));
  fmt::format_to(out, ", keys and values {:.1f}: {:.0f} tokens an engine\n",
                 gb(plan.engine.keys_and_values), plan.engine.tokens);
  if (!plan.fits) {
    fmt::format_to(out,
                   "  this does not fit: more devices, --optimizer-cpu-offload, full recomputation "
                   "or smaller --max-tokens-per-gpu\n");
  }
}

void print_messages(const Plan& plan, Buffer out) {
  fmt::format_to(out,
                 "\nMessages of a training step, of one device\n  {:<50} {:<8} {:>5} {:<13} {:>8} "
                 "{:>9} {:>8}\n",
                 "", "axis", "ranks", "over", "calls", "GB", "s");
  const auto print = [&](const Collective& one) {
    fmt::format_to(out, "  {:<50} {:<8} {:>5} {:<13} {:>8.0f} {:>9.2f} {:>8.3f}\n", one.name,
                   one.axis, one.ranks, one.crosses_hosts ? "the network" : "a host's link",
                   one.calls, gb(one.bytes), one.seconds);
  };
  for (const Collective& one : plan.best().collectives) print(one);
  if (plan.update.bytes > 0) {
    print(plan.update);
  } else {
    fmt::format_to(out, "  new weights: the engines {}, nothing moves\n",
                   plan.config.has_codes   ? "make codes of those that are trained"
                   : plan.engines.in_turns ? "read those that are trained"
                                           : "copy those that are trained");
  }
  const StepTime& time = plan.best().time;
  const double tflops =
      time.flops / time.total() / static_cast<double>(plan.config.trainers.count()) / 1e12;
  fmt::format_to(out,
                 "\nTraining step: computing {:.2f} s, waiting of stages {:.2f} s, messages {:.2f} "
                 "s if none overlaps: {:.2f} s, {:.0f} TFLOP/s a device. How long generation "
                 "takes: slime simulate.\n",
                 time.computing, time.bubble, time.collectives, time.total(), tflops);
}

void print_others(const Plan& plan, Buffer out) {
  const auto shown = std::min(plan.candidates.size(),
                              static_cast<size_t>(std::max<int64_t>(plan.config.num_shown, 1)));
  if (shown < 2) return;
  fmt::format_to(out, "\n{} layouts {}; the best of them\n  {:<36} {:>9} {:>12} {:>9}\n",
                 plan.candidates.size(), plan.fits ? "fit" : "are possible, none fits", "layout",
                 "s a step", "s messages", "GB");
  for (size_t i = 0; i < shown; ++i) {
    const Candidate& one = plan.candidates[i];
    fmt::format_to(out, "  {:<36} {:>9.2f} {:>12.2f} {:>9.1f}\n", to_words(one.layout),
                   one.time.total(), one.time.collectives, gb(one.largest_stage()));
  }
}

void print_rates(const Rates& rates, Buffer out) {
  fmt::format_to(out, "\nRates\n");
  const auto print = [&](const char* what, const Rate& rate, double unit, const char* name) {
    fmt::format_to(out, "  {:<18} {:>6.0f} {:<8} {}\n", what, rate.per_second / unit, name,
                   rate.source);
  };
  print("products", rates.products, 1e12, "TFLOP/s");
  print("experts' products", rates.expert_products, 1e12, "TFLOP/s");
  print("link of a host", rates.link, 1e9, "GB/s");
  print("network", rates.network, 1e9, "GB/s");
  fmt::format_to(out, "  {:<18} {:>6.0f} {:<8} {}\n", "not for tensors", gb(rates.reserved_bytes),
                 "GB", "driver, libraries, workspace (estimated)");
}

}  // namespace

std::string to_table(const Plan& plan) {
  std::string text;
  const Buffer out = std::back_inserter(text);
  print_head(plan, out);
  print_memory(plan, out);
  print_messages(plan, out);
  print_others(plan, out);
  print_rates(plan.config.rates, out);
  return text;
}

json::object to_json(const Plan& plan) {
  const Candidate& best = plan.best();
  const comm::ParallelLayout& layout = best.layout;
  json::array stages;
  for (const Stage& stage : best.stages) {
    stages.push_back(json::object{{"first_layer", stage.first_layer},
                                  {"end_layer", stage.end_layer},
                                  {"weights_bytes", stage.memory.weights},
                                  {"gradients_bytes", stage.memory.gradients},
                                  {"optimizer_bytes", stage.memory.optimizer},
                                  {"reference_bytes", stage.memory.others},
                                  {"activations_bytes", stage.memory.activations},
                                  {"logits_bytes", stage.memory.logits}});
  }
  const auto to_object = [](const Collective& one) {
    return json::object{{"name", one.name},      {"axis", one.axis},
                        {"ranks", one.ranks},    {"crosses_hosts", one.crosses_hosts},
                        {"calls", one.calls},    {"bytes", one.bytes},
                        {"seconds", one.seconds}};
  };
  json::array collectives;
  for (const Collective& one : best.collectives) collectives.push_back(to_object(one));
  return {{"is_prediction", true},
          {"parameters", plan.shape.parameters()},
          {"adapter_numbers", plan.shape.adapters()},
          {"fits", plan.fits},
          {"layout", json::object{{"tp", layout.tp},
                                  {"cp", layout.cp},
                                  {"pp", layout.pp},
                                  {"dp", layout.dp},
                                  {"ep", layout.ep},
                                  {"etp", layout.etp},
                                  {"first_layers", layout.first_layers},
                                  {"last_layers", layout.last_layers}}},
          {"trainer_memory", std::move(stages)},
          {"engines", json::object{{"devices", plan.engines.devices},
                                   {"per_engine", plan.engines.per_engine}}},
          {"engine_memory", json::object{{"weights_bytes", plan.engine.weights},
                                         {"draft_bytes", plan.engine.drafts},
                                         {"staged_bytes", plan.engine.staged},
                                         {"keys_and_values_bytes", plan.engine.keys_and_values},
                                         {"tokens", plan.engine.tokens}}},
          {"collectives", std::move(collectives)},
          {"update", to_object(plan.update)},
          {"step_seconds", json::object{{"computing", best.time.computing},
                                        {"bubble", best.time.bubble},
                                        {"collectives", best.time.collectives}}}};
}

}  // namespace slime::estimate
