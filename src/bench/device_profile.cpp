#include "bench/device_profile.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace slime::bench {
namespace {

constexpr std::size_t kShownKernels = 24;
constexpr std::size_t kShownName = 100;
constexpr int64_t kShortNs = 10'000;
constexpr std::string_view kCollectives = "collectives";

struct KernelGroup {
  std::string_view name;
  std::string_view word;  // in a kernel's name
};

/// The first whose word is there.
constexpr auto kKernelGroups = std::to_array<KernelGroup>({
    {kCollectives, "nccl"},
    {kCollectives, "peer_"},
    {"attention", "sdpa"},
    {"attention", "fmha"},
    {"attention", "flash"},
    {"attention", "attend"},
    {"products", "gemm"},
    {"products", "nvjet"},
    {"products", "cutlass"},
    {"products", "xmma"},
    {"products", "product_kernel"},
    {"products", "splitK"},
    {"optimizer", "adamw"},
    {"copies", "Memcpy"},
    {"copies", "Memset"},
    {"norms, activations", "slime::kernels"},
    {"single operations", "at::native"},
});

std::string_view group_of(std::string_view name) {
  for (const KernelGroup& group : kKernelGroups)
    if (name.find(group.word) != std::string_view::npos) return group.name;
  return "others";
}

using Spans = std::vector<std::pair<int64_t, int64_t>>;

/// Nanoseconds that at least one of them covers.
int64_t covered(Spans spans) {
  std::ranges::sort(spans);
  int64_t sum = 0, end = 0;
  for (const auto& [from, to] : spans) {
    sum += std::max<int64_t>(0, to - std::max(from, end));
    end = std::max(end, to);
  }
  return sum;
}

struct Gap {
  std::string_view before, behind;
  int64_t ns = 0;
};

/// The longest times in which none of them runs.
std::vector<Gap> longest_gaps(const std::vector<kernels::TracedKernel>& kernels) {
  constexpr std::size_t kShownGaps = 8;
  std::vector<const kernels::TracedKernel*> by_begin;
  for (const kernels::TracedKernel& kernel : kernels) by_begin.push_back(&kernel);
  std::ranges::sort(by_begin, {},
                    [](const kernels::TracedKernel* kernel) { return kernel->begin_ns; });
  std::vector<Gap> gaps;
  const kernels::TracedKernel* last = by_begin.front();  // that has ended
  for (const kernels::TracedKernel* kernel : by_begin) {
    if (kernel->begin_ns > last->end_ns)
      gaps.push_back({last->name, kernel->name, kernel->begin_ns - last->end_ns});
    if (kernel->end_ns > last->end_ns) last = kernel;
  }
  std::ranges::sort(gaps, std::greater(), &Gap::ns);
  gaps.resize(std::min(gaps.size(), kShownGaps));
  return gaps;
}

struct KernelSums {
  int64_t count = 0;
  int64_t ns = 0;
  int64_t added_ns = 0;  // of them, behind the ends of all before it
};
using SumsByName = std::map<std::string_view, KernelSums>;
using NamedSums = std::pair<std::string_view, KernelSums>;

SumsByName sums_by_name(const std::vector<kernels::TracedKernel>& kernels) {
  std::vector<const kernels::TracedKernel*> by_end;
  for (const kernels::TracedKernel& kernel : kernels) by_end.push_back(&kernel);
  std::ranges::sort(by_end, {}, [](const kernels::TracedKernel* kernel) { return kernel->end_ns; });
  SumsByName by_name;
  int64_t end = by_end.front()->begin_ns;
  for (const kernels::TracedKernel* kernel : by_end) {
    KernelSums& sums = by_name[kernel->name];
    ++sums.count;
    sums.ns += kernel->end_ns - kernel->begin_ns;
    sums.added_ns += kernel->end_ns - std::max(end, kernel->begin_ns);
    end = kernel->end_ns;
  }
  return by_name;
}

/// The kShownKernels with the most of it.
std::vector<NamedSums> longest(const SumsByName& by_name, int64_t KernelSums::*what) {
  std::vector<NamedSums> kernels(by_name.begin(), by_name.end());
  std::ranges::sort(kernels,
                    [&](const auto& a, const auto& b) { return a.second.*what > b.second.*what; });
  kernels.resize(std::min(kernels.size(), kShownKernels));
  return kernels;
}

}  // namespace

json::object device_profile(const std::vector<kernels::TracedKernel>& kernels, int repeats) {
  if (kernels.empty()) return {};
  Spans all, compute;
  std::map<std::string_view, int64_t> groups;
  int64_t begin = kernels.front().begin_ns, end = begin, short_ns = 0, collective_ns = 0;
  for (const kernels::TracedKernel& kernel : kernels) {
    const int64_t ns = kernel.end_ns - kernel.begin_ns;
    const std::string_view group = group_of(kernel.name);
    begin = std::min(begin, kernel.begin_ns);
    end = std::max(end, kernel.end_ns);
    all.emplace_back(kernel.begin_ns, kernel.end_ns);
    if (group != kCollectives) compute.push_back(all.back());
    if (group == kCollectives) collective_ns += ns;
    if (ns < kShortNs) short_ns += ns;
    groups[group] += ns;
  }
  const auto in_ms = [&](int64_t ns) { return static_cast<double>(ns) * 1e-6 / repeats; };
  const int64_t busy_ns = covered(all), compute_ns = covered(compute);
  json::object groups_ms;
  for (const auto& [group, ns] : groups) groups_ms[group] = in_ms(ns);
  const SumsByName by_name = sums_by_name(kernels);
  const auto shown_name = [](std::string_view name) {
    return std::string(name.substr(0, kShownName));
  };
  json::array shown, added;
  for (const auto& [name, sums] : longest(by_name, &KernelSums::ns)) {
    shown.push_back(
        json::array{shown_name(name), static_cast<double>(sums.count) / repeats, in_ms(sums.ns)});
  }
  for (const auto& [name, sums] : longest(by_name, &KernelSums::added_ns))
    added.push_back(json::array{shown_name(name), in_ms(sums.added_ns)});
  json::array gaps;
  for (const Gap& gap : longest_gaps(kernels))
    gaps.push_back(json::array{shown_name(gap.before), shown_name(gap.behind), in_ms(gap.ns)});
  return {{"span_ms", in_ms(end - begin)},
          {"compute_ms", in_ms(compute_ns)},
          {"collectives_ms", in_ms(collective_ns)},
          {"exposed_collectives_ms", in_ms(busy_ns - compute_ns)},
          {"idle_ms", in_ms(end - begin - busy_ns)},
          {"short_kernels_ms", in_ms(short_ns)},
          {"num_kernels", static_cast<double>(kernels.size()) / repeats},
          {"groups", std::move(groups_ms)},
          {"kernels", std::move(shown)},
          {"added", std::move(added)},
          {"gaps", std::move(gaps)}};
}

}  // namespace slime::bench
