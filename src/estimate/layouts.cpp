#include "estimate/layouts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"

namespace slime::estimate {
namespace {

constexpr int64_t kMostContext = 16;

std::vector<int64_t> sizes_of(const std::optional<int64_t>& wanted, int64_t most) {
  if (wanted) return {*wanted};
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= most; size *= 2) sizes.push_back(size);
  return sizes;
}

bool divides(int64_t size, const Divisible& divisible) {
  return divisible.heads % size == 0 &&
         (divisible.key_heads % size == 0 || size % divisible.key_heads == 0);
}

std::optional<comm::ParallelLayout> layout_of(int64_t tp, int64_t pp, int64_t cp, int64_t ep,
                                              int64_t etp, int64_t world, int64_t num_layers,
                                              bool sequence_parallel) {
  if (world % (tp * pp * cp) != 0) return std::nullopt;
  comm::ParallelLayout layout;
  layout.tp = static_cast<int>(tp);
  layout.pp = static_cast<int>(pp);
  layout.cp = static_cast<int>(cp);
  layout.ep = static_cast<int>(ep);
  layout.etp = static_cast<int>(etp);
  layout.dp = static_cast<int>(world / (tp * pp * cp));
  layout.sequence_parallel = sequence_parallel && tp > 1;
  if (static_cast<int64_t>(layout.dp) * cp * tp % (ep * etp) != 0) return std::nullopt;
  return with_layers(layout, num_layers);
}

}  // namespace

int64_t Candidate::largest_stage() const {
  int64_t largest = 0;
  for (const Stage& stage : stages) largest = std::max(largest, stage.memory.peak());
  return largest;
}

std::string to_words(const comm::ParallelLayout& layout) {
  std::vector<std::string> words;
  const auto add = [&](const char* name, int size) {
    if (size > 1) words.push_back(fmt::format("{} {}", name, size));
  };
  add("tp", layout.tp);
  add("cp", layout.cp);
  add("pp", layout.pp);
  add("dp", layout.dp);
  add("ep", layout.ep);
  add("etp", layout.etp);
  return words.empty() ? "one device" : fmt::format("{}", fmt::join(words, ", "));
}

std::optional<comm::ParallelLayout> with_layers(comm::ParallelLayout layout, int64_t num_layers) {
  if (num_layers < layout.pp) return std::nullopt;
  if (layout.pp == 1 || num_layers % layout.pp == 0) return layout;
  // The ranges between take the rounded-up share, and the ends what is left: they also have the
  // embedding and the output layer.
  const int64_t middle = (num_layers + layout.pp - 1) / layout.pp;
  const int64_t ends = num_layers - middle * (layout.pp - 2);
  if (ends < 2) return std::nullopt;
  layout.first_layers = static_cast<int>((ends + 1) / 2);
  layout.last_layers = static_cast<int>(ends / 2);
  return layout;
}

std::vector<Candidate> candidates(const ModelShape& shape, const Divisible& divisible,
                                  const Workload& workload, const Devices& devices,
                                  const Wanted& wanted, const Rates& rates,
                                  const WhyNoLayout& why_not) {
  const int64_t world = devices.count();
  const auto num_layers = static_cast<int64_t>(shape.blocks.size());
  std::vector<Candidate> all;
  std::string refused;  // of the first such layout
  for (const int64_t tp : sizes_of(wanted.tp, std::min(world, devices.per_host))) {
    if (!divides(tp, divisible)) continue;
    for (const int64_t pp : sizes_of(wanted.pp, std::min(world, num_layers))) {
      for (const int64_t cp : sizes_of(wanted.cp, std::min(world, kMostContext))) {
        for (const int64_t ep : sizes_of(wanted.ep, std::max<int64_t>(1, divisible.experts))) {
          if (ep > 1 && (divisible.experts == 0 || divisible.experts % ep != 0)) continue;
          const auto layout = layout_of(tp, pp, cp, ep, wanted.etp.value_or(1), world, num_layers,
                                        wanted.sequence_parallel);
          if (!layout) continue;
          if (const std::string why = why_not ? why_not(*layout) : ""; !why.empty()) {
            if (refused.empty()) refused = why;
            continue;
          }
          Candidate one{.layout = *layout};
          one.stages = stages_of(shape, *layout, workload);
          one.collectives = collectives_of_step(shape, *layout, workload, rates, devices.per_host);
          one.time = step_time(shape, *layout, workload, rates, one.collectives);
          all.push_back(std::move(one));
        }
      }
    }
  }
  if (all.empty() && !refused.empty()) throw ConfigError(refused);
  if (all.empty()) {
    throw ConfigError(fmt::format(
        "no layout of {} devices has these sizes: tensor x context x pipeline must divide the "
        "devices, tensor the {} heads and {} key-value heads, pipeline the {} layers, expert x "
        "expert tensor the ranks of a stage, expert the {} experts",
        world, divisible.heads, divisible.key_heads, num_layers, divisible.experts));
  }
  const int64_t room = rates.room();
  const auto fits = [&](const Candidate& one) { return one.largest_stage() <= room; };
  if (std::ranges::any_of(all, fits)) {
    std::erase_if(all, [&](const Candidate& one) { return !fits(one); });
    std::ranges::stable_sort(all, {}, [](const Candidate& one) { return one.time.total(); });
  } else {
    std::ranges::stable_sort(all, {}, &Candidate::largest_stage);
  }
  return all;
}

}  // namespace slime::estimate
