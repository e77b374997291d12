#include "cli/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/algo.h"
#include "bench/april.h"
#include "bench/colocation.h"
#include "bench/data.h"
#include "bench/decode_attention.h"
#include "bench/decode_delta.h"
#include "bench/engine.h"
#include "bench/engines_apart.h"
#include "bench/gpu_kernels.h"
#include "bench/gpu_train_step.h"
#include "bench/gpu_workloads.h"
#include "bench/grpo_step.h"
#include "bench/kernels.h"
#include "bench/plugin_calls.h"
#include "bench/rank_collectives.h"
#include "bench/reshard.h"
#include "bench/start.h"
#include "bench/train_step.h"
#include "bench/update_pause.h"
#include "bench/workload.h"
#include "cli/bench_options.h"
#include "cli/bench_train_commands.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/nearest_name.h"

// One file because the options of a measurement and its row in the table of names are one list.
namespace slime::cli {
namespace {

// Measurements with a name of their own. `arguments` are those after it.

int algo(Arguments arguments) {
  CLI::App app("The policy loss with KL term and truncated importance sampling, and its gradient.",
               "slime bench algo");
  bench::AlgoOptions options;
  app.add_option("--tokens", options.tokens, "Response tokens");
  app.add_option("--response-length", options.response_length, "Tokens per response");
  app.add_option(
      "--micro-batch-tokens", options.micro_batch_tokens,
      "Tokens of one call: the trainer calls once per micro-batch, and what a call makes "
      "on its way should stay in the caches");
  add_repeats(app, options.repeats, "The best counts");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  bench::measure_algo(options);
  return 0;
}

int data(Arguments arguments) {
  CLI::App app("Loads a prompt file as `slime train` does: rows, chat template, tokens.",
               "slime bench data");
  config::RunConfig config;
  std::string path;
  app.add_option("--model", config.hf_checkpoint, "Model directory")->required();
  app.add_option("--data", path, "JSON-lines or Parquet file")->required();
  app.add_option("--input-key", config.input_key, "Field with the prompt");
  app.add_flag("--apply-chat-template", config.apply_chat_template, "Render messages");
  app.add_option("--threads", config.num_data_workers, "0: all cores");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  config.prompt_data = {path};
  bench::measure_data(config);
  return 0;
}

int decode_attention(Arguments arguments) {
  CLI::App app("Attention of one layer in a decode step on the GPU.",
               "slime bench decode-attention");
  bench::DecodeAttentionOptions options;
  app.add_option("--batch", options.batches, "Sequences of a step")->capture_default_str();
  app.add_option("--keys", options.keys, "Keys of each sequence")->capture_default_str();
  app.add_option("--prompt", options.prompt, "Keys that --samples sequences share")
      ->capture_default_str();
  add_count(app, "--samples", options.samples, "Sequences of one prompt");
  app.add_option("--heads", options.heads, "Query heads")->capture_default_str();
  app.add_option("--kv-heads", options.kv_heads, "Key-value heads")->capture_default_str();
  app.add_option("--head-dim", options.head_dim, "Size of a head")
      ->capture_default_str()
      ->check(CLI::IsMember({64, 128, 256}));
  app.add_option("--kv-cache-dtype", options.kv_cache_dtype, "auto (bfloat16) or fp8_e4m3")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "fp8_e4m3"}));
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  bench::measure_decode_attention(options);
  return 0;
}

int decode_delta(Arguments arguments) {
  CLI::App app("The gated delta rule of one layer of Qwen3-Next in a step on the GPU.",
               "slime bench decode-delta");
  bench::DecodeDeltaOptions options;
  app.add_option("--batch", options.batches, "Sequences of a step")->capture_default_str();
  add_count(app, "--tokens", options.tokens, "Tokens of each sequence");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  bench::measure_decode_delta(options);
  return 0;
}

int engine_alone(Arguments arguments) {
  CLI::App app("Measure the rollout engine on this machine; JSON to standard output.",
               "slime bench engine");
  bench::EngineOptions options;
  bench::GenerationLoad& load = options.load;
  add_model(app, options.model);
  app.add_option("--kv-cache-dtype", options.engine.kv_cache_dtype,
                 "auto, bfloat16, float32 or (GPU) fp8_e4m3")
      ->capture_default_str();
  app.add_option("--requests", load.num_requests, "Requests at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  add_count(app, "--input-len", load.input_length, "Prompt tokens of each");
  add_count(app, "--output-len", load.output_length, "Generated tokens of each");
  app.add_option("--prompts", load.num_groups, "Distinct prompts; 0: one per request")
      ->capture_default_str();
  app.add_option("--rounds", load.rounds, "Rounds; the fastest counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  add_prefill(app, options.engine.max_prefill_tokens);
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  bench::measure_engine(options);
  return 0;
}

int grpo_step(Arguments arguments) {
  CLI::App app("One GRPO step on made-up prompts and rewards: generation, training, new weights.",
               "slime bench grpo-step");
  bench::GrpoOptions options;
  add_model(app, options.model);
  add_count(app, "--prompts", options.prompts, "of a step");
  add_count(app, "--samples", options.samples, "of each prompt");
  add_count(app, "--prompt-tokens", options.prompt_tokens, "of each prompt");
  add_count(app, "--new-tokens", options.new_tokens, "of each sample");
  add_repeats(app, options.repeats, "the best counts");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  bench::measure_grpo_step(options);
  return 0;
}

void add_colocation(CLI::App& app, bench::ColocationOptions& options) {
  add_shape(app, options.shape);
  app.add_option("--kv-cache-gb", options.kv_cache_gb, "Size of the cache, in 10^9 bytes")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1000.0));
  add_repeats(app, options.repeats, "The median counts");
}

int hand_over(Arguments arguments) {
  CLI::App app("New weights to the engine of the same GPU.", "slime bench hand-over");
  bench::ColocationOptions options;
  options.kv_cache_gb = 40;
  add_colocation(app, options);
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  bench::measure_hand_over(options);
  return 0;
}

int plugin_calls(Arguments arguments) {
  CLI::App app("Trivial rewards of a user's Python function.", "slime bench plugin-calls");
  bench::PluginOptions options;
  app.add_option("--plugin-python", options.python, "Interpreter")->capture_default_str();
  app.add_option("--plugin-hosts", options.hosts, "Processes")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--calls", options.calls, "at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 10'000'000));
  app.add_option("--response-tokens", options.response_tokens, "of each sample")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  add_repeats(app, options.repeats, "The best counts");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  bench::measure_plugin_calls(options);
  return 0;
}

int rank_collectives(Arguments arguments) {
  CLI::App app("Sums of small tensors over GPUs: through peer memory, and through NCCL.",
               "slime bench rank-collectives");
  bench::RankCollectiveOptions options;
  options.ranks.layout = "tp2";
  app.add_option("--kib", options.kib, "Sizes of the tensors")->capture_default_str();
  app.add_option("--hidden", options.hidden, "Numbers of a row that is normed")
      ->capture_default_str();
  app.add_option("--layout", options.ranks.layout, "tp2, tp4, ...")->capture_default_str();
  // Of the other ranks, which this command starts.
  app.add_option("--rank", options.ranks.rank)->group("");
  app.add_option("--port", options.ranks.port)->group("");
  options.ranks.command = {"bench", "rank-collectives"};
  options.ranks.command.insert(options.ranks.command.end(), arguments.begin(), arguments.end());
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  bench::measure_rank_collectives(options);
  return 0;
}

int sleep_wake(Arguments arguments) {
  CLI::App app("Keys and values give their memory back and take it again.",
               "slime bench sleep-wake");
  bench::ColocationOptions options;
  add_colocation(app, options);
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  bench::measure_sleep_wake(options);
  return 0;
}

int kernels_alone(Arguments arguments) {
  CLI::App app(
      "On the CPU matrix products of SmolLM2-135M at decode and training sizes, on a GPU each "
      "kernel of engine and trainer; one JSON line each.",
      "slime bench kernels");
  std::string device = "cpu";
  bench::ProductOptions products;
  bench::GpuKernelOptions kernels;
  app.add_option("--device", device, "cpu or cuda")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda"}));
  add_shape(app, kernels.shape);
  app.add_option("--only", kernels.only, "With cuda: kernels whose name holds this");
  app.add_option("--seconds", products.budget_seconds, "On the CPU: time per measurement");
  app.add_option("--rows", products.rows, "On the CPU: rows of the activations");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  if (device == "cuda") {
    bench::measure_gpu_kernels(kernels);
  } else {
    bench::measure_products(products);
  }
  return 0;
}

int train_step(Arguments arguments) {
  CLI::App app(
      "One training step on made-up tokens: packed forward, loss, backward, clipping, AdamW.",
      "slime bench train-step");
  bench::TrainStepOptions options;
  add_model(app, options.model);
  add_count(app, "--tokens", options.tokens, "of a step");
  app.add_option("--sequence-length", options.sequence_length, "of each sample")
      ->capture_default_str()
      ->check(CLI::Range(2, 1 << 20));
  app.add_option("--prompts", options.prompts, "samples share so many prompts; 0: none")
      ->check(CLI::NonNegativeNumber);
  add_repeats(app, options.repeats, "the best counts");
  app.add_flag("--recompute", options.recompute, "drop activations and compute them again");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  bench::measure_train_step(options);
  return 0;
}

constexpr auto kMeasurements = std::to_array<Command>({
    {"algo", "loss and gradient on a million tokens, beside the speed of memory", algo},
    {"data", "loading a prompt file: rows per second, memory", data},
    {"decode-attention", "attention of one layer in a decode step, beside the speed of memory",
     decode_attention},
    {"decode-delta", "gated delta rule of one layer in a step, beside the speed of memory",
     decode_delta},
    {"engine", "generation: tokens per second, step times, rates", engine_alone},
    {"grpo-step", "one step of the loop: generate, train, hand the weights over", grpo_step},
    {"hand-over", "new weights to the engine of the same GPU", hand_over},
    {"kernels", "products of the decoder; --device cuda: every kernel of a GPU", kernels_alone},
    {"plugin-calls", "trivial rewards of a user's Python function: calls per second", plugin_calls},
    {"rank-collectives", "sums of small tensors over GPUs, beside NCCL", rank_collectives},
    {"sleep-wake", "keys and values give their memory back and take it again", sleep_wake},
    {"train-step", "one training step on made-up tokens: tokens per second, phase times",
     train_step},
});

// Measurements in the shape qwen3-SIZE of the file of workloads. `name` is the whole name, `size`
// what follows the prefix.

int gpu_train_step(const std::string& name, std::string size, Arguments arguments) {
  CLI::App app("A GRPO step on the GPU: packed forward, loss, backward, clipping, AdamW.",
               "slime bench " + name);
  bench::GpuTrainOptions options;
  for (const auto& [ending, how] :
       {std::pair{std::string_view("-recompute"), model::Recompute::kFull},
        std::pair{std::string_view("-selective"), model::Recompute::kSelective}}) {
    if (!size.ends_with(ending)) continue;
    size.resize(size.size() - ending.size());
    options.recompute = how;
  }
  name_shape(app, options, name, size);
  app.add_option("--sequences", options.sequences, "Of a step")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--sequence-length", options.sequence_length, "Tokens of each")
      ->capture_default_str()
      ->check(CLI::Range(2, 1 << 20));
  app.add_option("--max-tokens-per-gpu", options.micro_batch_tokens, "Tokens of a micro-batch")
      ->capture_default_str();
  add_repeats(app, options.repeats, "The median counts");
  app.add_flag("--optimizer-cpu-offload", options.state_on_host,
               "Master weights and moments in host memory");
  app.add_flag("--profile", options.has_profile,
               "What fills a step: kernels, collectives, gaps, a line of each rank");
  app.add_option("--layout", options.ranks.layout,
                 "Several GPUs of this machine: dp2, tp2-sp, pp2-chunks2, cp2, dp2-cp2, ...; "
                 "--sequences are for each of them")
      ->capture_default_str();
  // Of the other ranks, which this command starts.
  app.add_option("--rank", options.ranks.rank)->group("");
  app.add_option("--port", options.ranks.port)->group("");
  options.ranks.command = {"bench", name};
  options.ranks.command.insert(options.ranks.command.end(), arguments.begin(), arguments.end());
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  bench::measure_gpu_train_step(options);
  return 0;
}

int start(const std::string& name, std::string size, Arguments arguments) {
  CLI::App app("From the start of the process to the first token.", "slime bench " + name);
  bench::StartOptions options;
  name_shape(app, options, name, size);
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  bench::measure_start(options);
  return 0;
}

void add_device(CLI::App& app, std::string& device) {
  app.add_option("--device", device, "cuda or cpu; the size \"tiny\" is made for the CPU")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda"}));
}

int april(const std::string& name, std::string size, Arguments arguments) {
  CLI::App app(
      "APRIL's tail: groups per second of synchronous steps, and with over-sampling and partial "
      "rollouts.",
      "slime bench " + name);
  bench::AprilOptions options;
  name_shape(app, options, name, size);
  add_device(app, options.device);
  app.add_option("--forms", options.forms,
                 "sync, partial, partial-early, partial-late, sync-double; separated by commas")
      ->capture_default_str()
      ->delimiter(',');
  add_count(app, "--prompts", options.prompts, "Of a step");
  add_count(app, "--samples", options.samples, "Of each prompt");
  add_count(app, "--prompt-tokens", options.prompt_tokens, "Of each prompt");
  app.add_option("--length-scale", options.length_scale,
                 "All lengths of responses times this; named in the output")
      ->capture_default_str()
      ->check(CLI::Range(1e-4, 1.0));
  add_count(app, "--steps", options.steps, "That count, of each form");
  app.add_option("--warm-up", options.warm_up, "Steps before them, of the partial form")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--first-step", options.first_step,
                 "Where the prompts begin: steps of the synchronous forms can be measured apart")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  add_count(app, "--max-running-requests", options.max_running_requests, "Requests per step");
  add_count(app, "--concurrency", options.concurrency, "Samples in the engine");
  app.add_option("--kv-cache-gb", options.kv_cache_gb,
                 "Size of the cache, in 10^9 bytes; 0: what is free")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1000.0));
  app.add_flag("--train", options.trains, "Train on each step's groups");
  app.add_flag("--update-weights", options.updates_weights,
               "Without training too: new weights after each step, so that what was handed back is "
               "prefilled again");
  add_count(app, "--max-tokens-per-gpu", options.micro_batch_tokens, "Of a micro-batch");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  bench::measure_april(options);
  return 0;
}

int update_pause(const std::string& name, std::string size, Arguments arguments) {
  CLI::App app("How long generation pauses for new weights.", "slime bench " + name);
  bench::UpdatePauseOptions options;
  name_shape(app, options, name, size);
  add_device(app, options.device);
  app.add_option("--modes", options.modes, "keep, recompute, interrupt; separated by commas")
      ->capture_default_str()
      ->delimiter(',');
  add_count(app, "--sequences", options.sequences, "That decode together");
  add_count(app, "--prompt-tokens", options.prompt_tokens, "Of each");
  add_count(app, "--steps-per-update", options.steps_per_update, "Of the engine");
  add_count(app, "--updates", options.updates, "Of each mode");
  app.add_option(
         "--engines-apart", options.engines_apart,
         "In processes of their own, each on a GPU behind the first; 0: one in this process")
      ->capture_default_str()
      ->check(CLI::Range(0, 64));
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  bench::measure_update_pauses(options);
  return 0;
}

int engine_counts(const std::string& name, std::string size, Arguments arguments) {
  CLI::App app(
      "Output tokens per second of one engine and of several, each in a process of its own.",
      "slime bench " + name);
  bench::EngineCountOptions options;
  name_shape(app, options, name, size);
  add_device(app, options.device);
  app.add_option("--engines", options.engines, "Numbers of engines; separated by commas")
      ->capture_default_str()
      ->delimiter(',')
      ->check(CLI::Range(1, 64));
  add_count(app, "--sequences", options.sequences, "For each engine, all at once");
  add_count(app, "--prompt-tokens", options.prompt_tokens, "Of each");
  add_count(app, "--new-tokens", options.new_tokens, "Of each");
  add_repeats(app, options.repeats, "The best counts");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  bench::measure_engine_counts(options);
  return 0;
}

int reshard(const std::string& name, std::string size, Arguments arguments) {
  CLI::App app("New weights of ranks that train parts of a model, in engines on the same GPUs.",
               "slime bench " + name);
  bench::ReshardOptions options;
  name_shape(app, options, name, size);
  options.ranks.layout = "tp2-sp";
  add_repeats(app, options.repeats, "The best counts");
  app.add_option("--layout", options.ranks.layout, "Of the ranks that train: tp2-sp, pp2, ...")
      ->capture_default_str();
  // Of the other ranks, which this command starts.
  app.add_option("--rank", options.ranks.rank)->group("");
  app.add_option("--port", options.ranks.port)->group("");
  options.ranks.command = {"bench", name};
  options.ranks.command.insert(options.ranks.command.end(), arguments.begin(), arguments.end());
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  bench::measure_reshard(options);
  return 0;
}

struct MeasurementFamily {
  std::string_view prefix;
  std::string_view summary;
  int (*run)(const std::string& name, std::string size, Arguments arguments);
};
constexpr auto kFamilies = std::to_array<MeasurementFamily>({
    {"train-step-",
     "a training step on the GPU; train-step-4b-recompute and -selective keep fewer activations",
     gpu_train_step},
    {"start-", "from the start of the process to the first token on the GPU", start},
    {"first-step-", "the command `slime train` to the end of its first optimizer step", first_step},
    {"grpo-", "steps of the command `slime train --device cuda`", grpo_command},
    {"forms-", "steps per hour of synchronous and asynchronous training, and who was idle",
     train_forms},
    {"april-", "steps with a tail of long responses: synchronous, and with partial rollouts",
     april},
    {"update-pause-", "how long generation pauses for new weights", update_pause},
    {"engines-", "output tokens per second of one engine and of several, each on a GPU of its own",
     engine_counts},
    {"reshard-", "new weights from parts of a model to engines of the whole on the same GPUs",
     reshard},
});

// Everything else is a workload of the file.

/// Names of measurements and, where the file is here, of workloads.
std::vector<std::string> known_names(const std::string& file) {
  std::vector<std::string> names;
  for (const Command& measurement : kMeasurements) names.emplace_back(measurement.name);
  for (const MeasurementFamily& family : kFamilies)
    names.push_back(fmt::format("{}SIZE", family.prefix));
  if (!std::filesystem::exists(file)) return names;
  for (const bench::Workload& workload : bench::read_workloads(file).workloads)
    names.push_back(workload.id);
  return names;
}

/// Throws ConfigError with the nearest name for what is neither a measurement nor a workload.
void refuse_unknown(const std::vector<std::string>& asked, const std::string& file) {
  const std::vector<std::string> names = known_names(file);
  const std::vector<std::string_view> views(names.begin(), names.end());
  std::vector<std::string> problems;
  for (const std::string& name : asked) {
    if (std::ranges::find(names, name) != names.end()) continue;
    const auto nearest = nearest_name(name, views);
    problems.push_back(
        fmt::format("{}: there is no such measurement, and no such workload in {}{}{}", name, file,
                    std::filesystem::exists(file) ? "" : ", which is not here (--workloads-file)",
                    nearest ? fmt::format("; did you mean {}?", *nearest)
                            : "; `slime bench --help` lists them"));
  }
  if (!problems.empty()) throw ConfigError(problems);
}

int gpu_workloads(Arguments arguments) {
  CLI::App app("Workloads that rollout engines are compared on, on this machine's GPU.",
               "slime bench WORKLOAD...");
  bench::GpuWorkloadOptions options;
  app.add_option("workloads", options.names, "Names in the file of workloads")->required();
  add_workloads_file(app, options.file);
  add_repeats(app, options.repeats, "The best counts");
  add_prefill(app, options.max_prefill_tokens);
  app.add_option("--max-running-requests", options.max_running_requests, "Requests per step")
      ->capture_default_str();
  app.add_option("--kv-cache-dtype", options.kv_cache_dtype, "auto or fp8_e4m3")
      ->capture_default_str();
  app.add_flag("!--no-shared-reads", options.shares_prompt_reads,
               "Each sample reads its prompt's keys and values itself");
  app.add_option("--tp", options.tp, "GPUs of this machine that share the model")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_flag("--disable-custom-all-reduce", options.nccl_alone,
               "With --tp: small sums go through NCCL, as large ones do");
  app.add_flag("--profile", options.has_profile,
               "What fills the first GPU's time: kernels, collectives, gaps");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  refuse_unknown(options.names, options.file);
  bench::measure_gpu_workloads(options);
  return 0;
}

int print_names(std::FILE* out) {
  fmt::print(out, "Usage: slime bench NAME [OPTIONS]\n\n");
  for (const Command& measurement : kMeasurements) {
    fmt::print(out, "  {:<17} {}\n", measurement.name, measurement.summary);
  }
  fmt::print(out, "  {:<17} {}\n", "WORKLOAD...",
             "a workload of bench/gpu/workloads.json on the GPU: offline-4b, decode-8b-b32, ...");
  for (const MeasurementFamily& family : kFamilies)
    fmt::print(out, "  {:<17} {}\n", fmt::format("{}SIZE", family.prefix), family.summary);
  return out == stdout ? 0 : 2;
}

}  // namespace

int bench(std::span<const std::string> arguments) {
  const std::string name = arguments.empty() ? "" : arguments.front();
  for (const Command& measurement : kMeasurements) {
    if (name == measurement.name) return measurement.run(arguments.subspan(1));
  }
  for (const MeasurementFamily& family : kFamilies) {
    if (name.starts_with(family.prefix))
      return family.run(name, name.substr(family.prefix.size()), arguments.subspan(1));
  }
  if (!name.empty() && !name.starts_with('-')) return gpu_workloads(arguments);
  return print_names(name == "--help" || name == "-h" ? stdout : stderr);
}

}  // namespace slime::cli
