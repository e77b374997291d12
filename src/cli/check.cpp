#include "cli/check.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "acceptance/report.h"
#include "acceptance/sections.h"
#include "cli/options.h"
#include "core/calendar.h"
#include "core/error.h"
#include "core/json_lines.h"
#include "core/program_version.h"
#include "kernels/gpu/gpu.h"

namespace slime::cli {
namespace {

void print_difference(const acceptance::Figure& figure) {
  if (!acceptance::differs(figure)) return;
  fmt::print("differs   {}: {}, {}\n", figure.section, figure.what,
             figure.kind == acceptance::Figure::Kind::kProblem
                 ? figure.text
                 : fmt::format("{:.3g} where {:.3g} is the most", figure.value, figure.most));
  std::fflush(stdout);
}

/// A line when another section begins: some take minutes.
class Progress {
 public:
  void operator()(const acceptance::Figure& figure) {
    if (figure.section != section_) {
      section_ = figure.section;
      fmt::print("checking  {}\n", section_);
    }
    if (figure.kind == acceptance::Figure::Kind::kTold)
      fmt::print("          {}: {}\n", figure.what, figure.text);
    print_difference(figure);
    std::fflush(stdout);
  }

 private:
  std::string section_;
};

void require_device(const std::string& device) {
  if (device == "cpu") return;
  const std::string missing =
      device == "hip" ? kernels::missing_for_hip() : kernels::missing_for_gpus();
  if (!missing.empty()) throw ConfigError(fmt::format("--device {}: {}", device, missing));
}

/// "2026-11-30", in UTC.
std::string today() {
  return to_date_text(std::chrono::local_days(
      std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now()).time_since_epoch()));
}

int check_all(const acceptance::CheckPlan& plan, const std::string& output) {
  require_device(plan.device);
  std::ofstream file(output);  // before the hour, not behind it
  if (!file) throw ConfigError(fmt::format("--output {}: cannot be written", output));
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<acceptance::Figure> figures =
      acceptance::check_device("/proc/self/exe", plan, Progress());
  const std::chrono::duration<double, std::ratio<60>> took =
      std::chrono::steady_clock::now() - begin;
  file << acceptance::report_text({.version = std::string(program_version()),
                                   .device = plan.device,
                                   .is_quick = plan.is_quick,
                                   .date = today(),
                                   .minutes = took.count()},
                                  figures);
  file.close();
  if (!file) throw ConfigError(fmt::format("--output {}: cannot be written", output));
  fmt::print("{}; the report is {}\n", acceptance::summary_of(figures), output);
  return acceptance::has_difference(figures) ? 1 : 0;
}

}  // namespace

int check_command(std::span<const std::string> arguments) {
  CLI::App app{
      "Compares a device with references: kernels, gradients and optimizer with plain operations "
      "in float64, tiny training runs with the CPU; on a GPU also draws, recorded steps with "
      "launched ones, and memory that goes back. Writes a report to post. Exit code 1 where "
      "anything differs.",
      "slime check"};
  acceptance::CheckPlan plan;
  std::string output, section;
  app.add_option("--device", plan.device, "cpu; cuda or hip: the first visible GPU")
      ->required()
      ->check(CLI::IsMember({"cpu", "cuda", "hip"}));
  app.add_flag("--quick", plan.is_quick, "small shapes and few rounds: minutes, not up to an hour");
  app.add_option("--output", output, "file of the report; default: slime-check-DEVICE.md");
  app.add_option("--section", section, "one section in this process, as JSON lines")->group("");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  if (section.empty())
    return check_all(plan, output.empty() ? fmt::format("slime-check-{}.md", plan.device) : output);
  acceptance::run_section(section, plan, [](const acceptance::Figure& figure) {
    write_json_line(acceptance::to_json(figure));
  });
  return 0;
}

}  // namespace slime::cli
