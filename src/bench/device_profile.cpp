#include "bench/device_profile.h"

#include <algorithm>
#include <array>
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

}  // namespace

json::object device_profile(const std::vector<kernels::TracedKernel>& kernels, int repeats) {
  if (kernels.empty()) return {};
  Spans all, compute;
  std::map<std::string_view, int64_t> groups;
  std::map<std::string_view, std::pair<int64_t, int64_t>> by_name;  // count, ns
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
    auto& [count, sum] = by_name[kernel.name];
    ++count;
    sum += ns;
  }
  const auto in_ms = [&](int64_t ns) { return static_cast<double>(ns) * 1e-6 / repeats; };
  const int64_t busy_ns = covered(all), compute_ns = covered(compute);
  json::object groups_ms;
  for (const auto& [group, ns] : groups) groups_ms[group] = in_ms(ns);
  std::vector<std::pair<std::string_view, std::pair<int64_t, int64_t>>> longest(by_name.begin(),
                                                                                by_name.end());
  std::ranges::sort(longest,
                    [](const auto& a, const auto& b) { return a.second.second > b.second.second; });
  longest.resize(std::min(longest.size(), kShownKernels));
  json::array shown;
  for (const auto& [name, sums] : longest) {
    shown.push_back(json::array{std::string(name.substr(0, kShownName)),
                                static_cast<double>(sums.first) / repeats, in_ms(sums.second)});
  }
  return {{"span_ms", in_ms(end - begin)},
          {"compute_ms", in_ms(compute_ns)},
          {"collectives_ms", in_ms(collective_ns)},
          {"exposed_collectives_ms", in_ms(busy_ns - compute_ns)},
          {"idle_ms", in_ms(end - begin - busy_ns)},
          {"short_kernels_ms", in_ms(short_ns)},
          {"num_kernels", static_cast<double>(kernels.size()) / repeats},
          {"groups", std::move(groups_ms)},
          {"kernels", std::move(shown)}};
}

}  // namespace slime::bench
