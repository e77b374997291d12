#include "bench/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <vector>

#include "bench/clone_file.h"
#include "bench/descriptions.h"
#include "bench/made_up_model.h"
#include "bench/measurements.h"
#include "bench/workload.h"
#include "core/error.h"
#include "core/nearest_name.h"

namespace slime::bench {
namespace {

constexpr const char* kDescriptionsFile = "bench/measurements.json";
constexpr std::string_view kSizedModel = "qwen3-";  // what has sizes in descriptions

const Measurement* find_measurement(std::string_view name) {
  const auto all = measurements();
  const auto found = std::ranges::find_if(all, [&](const auto& one) { return name == one.name; });
  return found == all.end() ? nullptr : &*found;
}

/// Empty outside of a clone: measurements go by their own names there.
Descriptions descriptions() {
  const std::string path = file_of_clone(kDescriptionsFile);
  return std::filesystem::exists(path) ? read_descriptions(path) : Descriptions{};
}

/// The file that --workloads-file names, or the clone's; empty where there is none.
WorkloadFile workloads_of(Arguments arguments) {
  const auto flag = std::ranges::find(arguments, "--workloads-file");
  const std::string path = flag == arguments.end() || flag + 1 == arguments.end()
                               ? file_of_clone(kWorkloadsFile)
                               : *(flag + 1);
  return std::filesystem::exists(path) ? read_workloads(path) : WorkloadFile{};
}

[[noreturn]] void refuse(const std::string& name, const Descriptions& described,
                         const WorkloadFile& file) {
  std::vector<std::string> known;
  for (const Measurement& one : measurements()) known.emplace_back(one.name);
  for (const Workload& workload : file.workloads) known.push_back(workload.id);
  std::vector<std::string> sizes;
  for (const auto& model : file.models)
    if (model.first.starts_with(kSizedModel))
      sizes.push_back(model.first.substr(kSizedModel.size()));
  for (const auto& entry : described) {
    for (const std::string& size : sizes)
      known.push_back(with_size(std::string(entry.key()), size));
  }
  const std::vector<std::string_view> names(known.begin(), known.end());
  const auto nearest = nearest_name(name, names);
  throw ConfigError(
      fmt::format("no measurement or workload \"{}\"{}; `slime bench --help` lists them", name,
                  nearest ? fmt::format("; did you mean {}?", *nearest) : ""));
}

int print_names(std::FILE* out) {
  fmt::print(out, "Usage: slime bench NAME [FLAGS]\n\nMeasurements:\n");
  for (const Measurement& one : measurements())
    fmt::print(out, "  {:<17} {}\n", one.name, one.summary);
  fmt::print(out, "\nDescribed in {} (SIZE: 0.6b, 4b, ...):\n ", kDescriptionsFile);
  for (const auto& entry : descriptions()) fmt::print(out, " {}", std::string(entry.key()));
  fmt::print(out, "\n\nWorkloads of {}, any number of them:\n ", kWorkloadsFile);
  for (const Workload& workload : workloads_of({}).workloads) fmt::print(out, " {}", workload.id);
  fmt::print(out, "\n\n`slime bench NAME --help` lists a measurement's flags.\n");
  return out == stdout ? 0 : 2;
}

}  // namespace

int run(Arguments arguments) {
  const std::string name = arguments.empty() ? "" : arguments.front();
  if (name.empty() || name == "--help" || name == "-h")
    return print_names(name.empty() ? stderr : stdout);
  const Arguments typed = arguments.subspan(1);
  if (const Measurement* one = find_measurement(name)) return one->run(name, typed);
  const Descriptions described = descriptions();
  if (auto found = find_description(described, name, typed)) {
    const Measurement* one = find_measurement(found->measurement);
    if (one == nullptr)
      throw ConfigError(fmt::format("{}: \"{}\": there is no measurement {}", kDescriptionsFile,
                                    name, found->measurement));
    found->flags.insert(found->flags.end(), typed.begin(), typed.end());
    return one->run(name, found->flags);
  }
  const WorkloadFile file = workloads_of(typed);
  if (file.find(name) == nullptr) refuse(name, described, file);
  return find_measurement("workloads")->run(name, arguments);
}

}  // namespace slime::bench
