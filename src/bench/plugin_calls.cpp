/// What a call of a user's Python function costs: rewards through plug-in hosts, as a run makes them.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <latch>
#include <limits>

#include "bench/flags.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/json_lines.h"
#include "core/temporary_folder.h"
#include "plugin/hosts.h"
#include "plugin/reward.h"

namespace slime::bench {
namespace {

struct PluginOptions {
  std::string python = "python3";
  int hosts = 1;
  int64_t calls = 50'000;         // at once, as behind a step of that many samples
  int64_t response_tokens = 256;  // of each sample; the prompt has as many
  int repeats = 3;                // the best counts
};

constexpr const char* kReward = "async def reward(args, sample, **kwargs):\n    return 1.0\n";
constexpr std::chrono::seconds kTimeout{600};

Sample scored_sample(int64_t ordinal, int64_t response_tokens) {
  const auto length = static_cast<std::size_t>(response_tokens);
  Sample sample{.ordinal = ordinal, .group = ordinal / 8};
  sample.prompt = "What is 17 times 23?";
  sample.response = "17 times 23 is 391.";
  sample.label = "391";
  sample.prompt_length = response_tokens;
  sample.tokens.assign(2 * length, 1234);
  sample.log_probs.assign(length, -0.5F);
  sample.versions = {{1, response_tokens}};
  sample.status = Status::kCompleted;
  return sample;
}

double seconds_of_calls(plugin::Hosts& hosts, const PluginOptions& options) {
  std::vector<Sample> samples;
  for (int64_t i = 0; i < options.calls; ++i)
    samples.push_back(scored_sample(i, options.response_tokens));
  std::latch answered(options.calls);
  std::atomic<int64_t> num_failed{0};
  const SystemClock clock;
  const auto start = clock.now();
  for (Sample& sample : samples) {
    plugin::score(hosts, 0, kTimeout, std::move(sample), {}, [&](const Expected<Sample>& scored) {
      if (!scored) ++num_failed;
      answered.count_down();
    });
  }
  answered.wait();
  if (num_failed > 0) throw ConfigError(fmt::format("{} calls failed", num_failed.load()));
  return seconds_between(start, clock.now());
}

void measure_plugin_calls(const PluginOptions& options) {
  const TemporaryFolder folder("slime-bench-plugin");
  const std::filesystem::path file = folder.path() / "rewards.py";
  std::ofstream(file) << kReward;
  plugin::Hosts hosts({.python = options.python,
                       .num_hosts = options.hosts,
                       .logs = folder.path() / "logs",
                       .flags = {},
                       .hooks = {{.hook = "reward", .path = file.string()}},
                       .hooks_of_first = {}});
  double seconds = std::numeric_limits<double>::infinity();
  for (int i = 0; i < options.repeats; ++i)
    seconds = std::min(seconds, seconds_of_calls(hosts, options));
  const auto calls = static_cast<double>(options.calls);
  write_json_line({{"benchmark", "plugin-calls"},
                   {"calls", options.calls},
                   {"hosts", options.hosts},
                   {"response_tokens", options.response_tokens},
                   {"seconds", seconds},
                   {"calls_per_second", calls / seconds},
                   {"microseconds_per_call", 1e6 * seconds / calls}});
}

}  // namespace

int plugin_calls(const std::string& name, Arguments arguments) {
  PluginOptions options;
  Flags flags("Trivial rewards of a user's Python function.", name);
  flags.add("--plugin-python", options.python, "Interpreter");
  flags.range("--plugin-hosts", options.hosts, 1, 64, "Processes");
  flags.range("--calls", options.calls, 1, 10'000'000, "at once");
  flags.range("--response-tokens", options.response_tokens, 1, 65536, "of each sample");
  flags.repeats(options.repeats, "The best counts");
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  measure_plugin_calls(options);
  return 0;
}

}  // namespace slime::bench
