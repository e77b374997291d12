#include "bench/engines_apart.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "bench/flags.h"
#include "bench/generate_all.h"
#include "bench/random_tokens.h"
#include "cluster/local_process.h"
#include "cluster/placement.h"
#include "config/parse_flags.h"
#include "config/validate.h"
#include "core/clock.h"
#include "core/json_lines.h"
#include "kernels/gpu/gpu.h"

namespace slime::bench {
namespace {

struct EngineCountOptions {
  std::string name;
  ShapeOptions shape;
  std::string device = "cuda";
  std::vector<int64_t> engines = {1, 2};
  int64_t sequences = 256;  // for each engine
  int64_t prompt_tokens = 1024;
  int64_t new_tokens = 1024;
  int repeats = 2;
};

constexpr int64_t kPrefillTokens = 8192;
/// Before what counts: batch sizes are recorded.
constexpr int64_t kFirstTokens = 32;

/// Of `slime train`, for its engines.
std::vector<std::string> arguments(const EnginesApart& engines, const MadeUpDirectory& directory) {
  std::vector<std::string> words{"--device",
                                 engines.device,
                                 "--dtype",
                                 engines.device == "cuda" ? "bfloat16" : "float32",
                                 "--hf-checkpoint",
                                 directory.model().string(),
                                 "--prompt-data",
                                 directory.prompts().string(),
                                 "--rm-type",
                                 "random",
                                 "--num-rollout",
                                 "1",
                                 "--rollout-batch-size",
                                 "1",
                                 "--n-samples-per-prompt",
                                 "2",
                                 "--rollout-num-gpus",
                                 std::to_string(engines.engines),
                                 "--rollout-max-response-len",
                                 std::to_string(engines.context - engines.prompt_tokens),
                                 "--sglang-context-length",
                                 std::to_string(engines.context),
                                 "--sglang-max-running-requests",
                                 std::to_string(engines.sequences),
                                 "--sglang-chunked-prefill-size",
                                 std::to_string(kPrefillTokens)};
  if (engines.lora_rank > 0)
    words.insert(words.end(), {"--lora-rank", std::to_string(engines.lora_rank), "--lr", "1e-5"});
  return words;
}

config::RunConfig flags_of(const std::vector<std::string>& arguments) {
  config::ParsedFlags flags = config::parse_flags(arguments);
  config::complete_and_validate(flags);
  return std::move(flags.config);
}

/// In the host's memory, so that every GPU has an engine.
std::unique_ptr<model::Network> weights_on_host(const EngineCountOptions& options,
                                                const model::ModelConfig& shape) {
  const at::ScalarType type = options.device == "cuda" ? at::kBFloat16 : at::kFloat;
  return make_up_network_on_host(shape, type, kGenerationWeightBound);
}

std::vector<engine::GenerateRequest> requests_of(const EngineCountOptions& options, int64_t count,
                                                 int64_t vocab_size, int64_t new_tokens) {
  std::vector<engine::GenerateRequest> requests(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    append_random_tokens(requests[i].input_ids, options.prompt_tokens, vocab_size, 7,
                         static_cast<int64_t>(i));
    requests[i].sampling.max_new_tokens = new_tokens;
    requests[i].sampling.ignore_eos = true;
    requests[i].return_logprob = true;
  }
  return requests;
}

/// Seconds of the fastest run.
double fastest_seconds(engine::EngineClient& engines, const EngineCountOptions& options,
                       int64_t num_requests, int64_t vocab_size) {
  const SystemClock clock;
  double best = 1e300;
  for (int repeat = -1; repeat < options.repeats; ++repeat) {
    engine::or_throw(engines.flush_cache());
    auto requests = requests_of(options, num_requests, vocab_size,
                                repeat < 0 ? kFirstTokens : options.new_tokens);
    const auto start = clock.now();
    generate_all(engines, std::move(requests));
    if (repeat >= 0) best = std::min(best, seconds_between(start, clock.now()));
  }
  return best;
}

}  // namespace

roles::EngineWorkersConfig config_of(const EnginesApart& engines,
                                     const MadeUpDirectory& directory) {
  roles::EngineWorkersConfig config;
  config.count = static_cast<int>(engines.engines);
  const cluster::Placement placement{.num_ranks = static_cast<int>(engines.devices_before),
                                     .num_engines = config.count,
                                     .has_devices = engines.device == "cuda"};
  for (int index = 0; index < config.count; ++index)
    config.places.push_back(placement.of_engine(index));
  config.start = {.config = flags_of(arguments(engines, directory)),
                  .longest_prompt = engines.prompt_tokens,
                  .num_threads = 1};
  config.log_folder = directory.path();
  return config;
}

namespace {

/// Prints a JSON line for each number of engines: output tokens per second of all together, and how
/// many times that is what the first number of them makes.
void measure_engine_counts(const EngineCountOptions& options) {
  const model::ModelConfig shape = read_shape(options.shape);
  if (options.device == "cuda")
    kernels::open_gpu();  // it locks the pages that weights are sent from
  const MadeUpDirectory directory({.shape = options.shape, .has_weights = false});
  const auto published = weights_on_host(options, shape);
  const SystemClock clock;
  double first = 0;  // tokens per second
  for (const int64_t count : options.engines) {
    cluster::LocalLauncher launcher;
    roles::EngineWorkers engines(config_of({.shape = options.shape,
                                            .device = options.device,
                                            .engines = count,
                                            .sequences = options.sequences,
                                            .prompt_tokens = options.prompt_tokens,
                                            .context = options.prompt_tokens + options.new_tokens},
                                           directory),
                                 *published, nullptr, 0, launcher, clock);
    const int64_t requests = count * options.sequences;
    const double seconds = fastest_seconds(engines.client(), options, requests, shape.vocab_size);
    const double rate = static_cast<double>(requests * options.new_tokens) / seconds;
    if (first == 0) first = rate;
    write_json_line({{"name", options.name},
                     {"engines", count},
                     {"value", rate},
                     {"unit", "output tokens per second"},
                     {"to_first", rate / first},
                     {"sequences", requests},
                     {"seconds", seconds},
                     {"model", options.shape.model},
                     {"device", options.device}});
  }
}

}  // namespace

int engine_counts(const std::string& name, Arguments arguments) {
  EngineCountOptions options;
  options.name = name;
  Flags flags(
      "Output tokens per second of one engine and of several, each in a process of its own.", name);
  flags.shape(options.shape);
  flags.device(options.device, "cuda or cpu; the size \"tiny\" is made for the CPU");
  flags.list("--engines", options.engines, "Numbers of engines; separated by commas")
      ->check(CLI::Range(1, 64));
  flags.count("--sequences", options.sequences, "For each engine, all at once");
  flags.count("--prompt-tokens", options.prompt_tokens, "Of each");
  flags.count("--new-tokens", options.new_tokens, "Of each");
  flags.repeats(options.repeats, "The best counts");
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  measure_engine_counts(options);
  return 0;
}

}  // namespace slime::bench
