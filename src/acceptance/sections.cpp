#include "acceptance/sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include "acceptance/child_problem.h"
#include "acceptance/gpu_sections.h"
#include "acceptance/kernel_twins.h"
#include "acceptance/tiny_run.h"
#include "core/error.h"
#include "core/temporary_folder.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/processor.h"
#include "kernels/gpu/gpu.h"

namespace slime::acceptance {
namespace {

constexpr std::chrono::seconds kPatience{1200};
constexpr int kProcessesOfGraphs = 10;

void describe_processor(const Tell& tell) {
  namespace cpu = kernels::cpu;
  const char* widest = cpu::has_amx()      ? "AMX"
                       : cpu::has_tiles()  ? "AVX-512 BF16"
                       : cpu::has_avx512() ? "AVX-512"
                       : cpu::has_avx2()   ? "AVX2"
                                           : "no AVX2";
  tell({.section = "device", .what = "processor", .kind = Figure::Kind::kTold, .text = widest});
}

void run_in_child(const std::string& program, const std::string& section, const CheckPlan& plan,
                  const Tell& tell) {
  std::vector<std::string> words{program, "check", "--device", plan.device, "--section", section};
  if (plan.is_quick) words.emplace_back("--quick");
  const std::string problem = problem_of_child(
      {.words = words, .patience = kPatience, .on_line = [&](const std::string& line) {
         const std::optional<json::value> value = try_parse_json(line);
         if (!value || !value->is_object()) return;  // of a library
         tell(figure_of(value->as_object()));
       }});
  if (problem.empty()) return;
  tell({.section = section,
        .what = "the process of this section",
        .kind = Figure::Kind::kProblem,
        .text = problem});
}

}  // namespace

std::vector<std::string> sections_of(const CheckPlan& plan) {
  std::vector<std::string> names{"device", "kernels", "gradients", "optimizer"};
  if (plan.device == "cpu") return names;
  names.emplace_back("sampling");
  names.insert(names.end(), plan.is_quick ? 1 : kProcessesOfGraphs, "graphs");
  names.emplace_back("memory");
  return names;
}

void run_section(const std::string& name, const CheckPlan& plan, const Tell& tell) {
  const bool is_on_cpu = plan.device == "cpu";
  kernels::choose_platform(plan.device);
  kernels::Gpu* const gpu = is_on_cpu ? nullptr : &kernels::open_gpu();
  const Side side{
      is_on_cpu ? kernels::cpu::device() : gpu->device(), is_on_cpu ? at::kCPU : at::kCUDA,
      is_on_cpu ? std::vector{at::kFloat} : std::vector{at::kFloat, at::kBFloat16, at::kHalf},
      plan.is_quick};
  if (name == "device") return is_on_cpu ? describe_processor(tell) : describe_gpu(*gpu, tell);
  if (name == "kernels") return compare_layers(side, tell);
  if (name == "gradients") return compare_gradients(side, tell);
  if (name == "optimizer") return compare_optimizer(side, tell);
  if (is_on_cpu) throw ConfigError(fmt::format("section {}: a CPU has none", name));
  if (name == "sampling") return compare_sampling(side, tell);
  if (name == "graphs") return compare_recordings(side, *gpu, tell);
  if (name == "memory") return check_returned_memory(side, *gpu, tell);
  throw ConfigError(fmt::format("section {}: there is none of this name", name));
}

std::vector<Figure> check_device(const std::string& program, const CheckPlan& plan,
                                 const Tell& tell) {
  std::vector<Figure> figures;
  const auto keep = [&](const Figure& figure) {
    figures.push_back(figure);
    tell(figure);
  };
  for (const std::string& section : sections_of(plan)) run_in_child(program, section, plan, keep);
  TemporaryFolder scratch("slime-check");
  check_training({.program = program,
                  .device = plan.device,
                  .is_quick = plan.is_quick,
                  .folder = scratch.path()},
                 keep);
  if (std::ranges::any_of(figures, [](const Figure& figure) {
        return figure.section == "training" && figure.kind == Figure::Kind::kProblem;
      })) {
    scratch.keep();
    fmt::print(stderr, "slime check: the logs of the runs that failed are in {}\n",
               scratch.path().string());
  }
  return figures;
}

}  // namespace slime::acceptance
