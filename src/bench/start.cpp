/// From the start of the process to the first token, with made-up weights on the GPU.

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "bench/flags.h"
#include "bench/generate_all.h"
#include "core/clock.h"
#include "core/json_lines.h"
#include "engine/engine.h"
#include "kernels/gpu/gpu.h"

namespace slime::bench {
namespace {

struct StartOptions {
  std::string name;  // of the printed line
  ShapeOptions shape;
};

constexpr int64_t kPromptTokens = 128;

/// Seconds since the system started this process, to a hundredth.
double process_age() {
  std::ifstream stat("/proc/self/stat"), uptime("/proc/uptime");
  std::string line;
  std::getline(stat, line);
  // The name in parentheses may hold spaces; the start is the twentieth word after it.
  std::istringstream words(line.substr(line.rfind(')') + 1));
  std::string word;
  for (int i = 0; i < 20; ++i) words >> word;
  double seconds_up = 0;
  uptime >> seconds_up;
  return seconds_up - std::stod(word) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

void measure_start(const StartOptions& options) {
  const SystemClock clock;
  const auto begin = clock.now();
  const double before = process_age();
  const std::string& name = options.name;
  const model::ModelConfig shape = read_shape(options.shape);

  json::object parts{{"process", before}};
  auto since = clock.now();
  const auto lap = [&](const char* part) {
    const auto now = clock.now();
    parts[part] = seconds_between(since, now);
    since = now;
  };
  kernels::Gpu& gpu = kernels::open_gpu();
  lap("open_gpu");
  const auto network = make_up_network(shape, kGenerationWeightBound);
  lap("weights");
  engine::EngineConfig config;
  config.max_prefill_tokens = 8192;
  config.max_running_requests = 256;
  config.kv_cache_bytes = most_free_bytes();
  engine::Engine engine(*network, config, clock);
  lap("engine");
  engine::GenerateRequest request;
  for (int64_t i = 0; i < kPromptTokens; ++i)
    request.input_ids.push_back(static_cast<TokenId>(i * 97 % 10000));
  request.sampling.max_new_tokens = 1;
  std::vector<engine::GenerateRequest> requests;
  requests.push_back(std::move(request));
  generate_all(engine, std::move(requests));
  const double seconds = before + seconds_between(begin, clock.now());
  lap("first_token");
  write_json_line({{"name", name},
                   {"value", seconds},
                   {"unit", "s"},
                   {"floor", 0.5},
                   {"fraction", 0.5 / seconds},
                   {"parts", parts},
                   {"gpu", gpu.description()}});
}

}  // namespace

int start(const std::string& name, Arguments arguments) {
  StartOptions options{.name = name, .shape = {}};
  Flags flags("From the start of the process to the first token.", name);
  flags.shape(options.shape);
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  measure_start(options);
  return 0;
}

}  // namespace slime::bench
