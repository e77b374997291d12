#include "kernels/gpu/peak.h"

#include <utility>

namespace slime::kernels {
namespace {

// TFLOP/s without sparsity, as NVIDIA's data sheets give them; the first name that occurs counts.
constexpr std::pair<std::string_view, double> kPeaks[] = {
    {"GB300", 2500},       {"B300", 2500},      {"GB200", 2500},     {"B200", 2250},
    {"B100", 1750},        {"H100 PCIe", 756},  {"H100 NVL", 835},   {"GH200", 989},
    {"H200", 989},         {"H100", 989},       {"H800", 989},       {"H20", 148},
    {"A100", 312},         {"A800", 312},       {"A40", 149.7},      {"A30", 165},
    {"A10", 125},          {"L40S", 362},       {"L40", 181},        {"L4", 121},
    {"RTX 6000 Ada", 364}, {"RTX 5090", 209.5}, {"RTX 4090", 165.2}, {"RTX 3090", 71},
};

}  // namespace

std::optional<double> peak_flops(std::string_view name) {
  for (const auto& [part, tflops] : kPeaks)
    if (name.find(part) != std::string_view::npos) return tflops * 1e12;
  return std::nullopt;
}

}  // namespace slime::kernels
