#include "cli/tinker.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <system_error>
#include <vector>

#include "cli/by_name.h"
#include "cli/options.h"
#include "cli/train.h"
#include "cluster/parent_watch.h"
#include "config/parse_flags.h"
#include "config/unread_flags.h"
#include "config/validate.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "loop/verb_door.h"
#include "net/secret.h"
#include "setup/run_devices.h"
#include "tinker/service.h"
#include "tinker/tinker_server.h"
#include "train/keep_freed_memory.h"

namespace slime::cli {
namespace {

constexpr const char* kTinkerHelp =
    "slime tinker: models that are trained and sampled by requests (docs/tinker.md).\n\n"
    "  slime tinker MODEL                            for clients of the protocol\n"
    "  slime tinker --door DIR FLAGS OF slime train  for slime.start of Python\n\n"
    "  --port N                   listens on 127.0.0.1:N (8000)\n"
    "  --store DIR                of what is saved, and of what outlives this process (./tinker)\n"
    "  --served-model-name NAME   what clients call the model (MODEL)\n"
    "  --max-models N             trained at once (8)\n"
    "  --max-lora-rank N          the highest rank (128)\n"
    "  --api-key-file FILE        keys, one a line: a client for each, which sees its own alone\n"
    "  --state-seconds N          of work that is done again, at most, after kill -9 (30)\n"
    "  --silence-seconds N        without a heartbeat, after which a session is over (900)\n"
    "  --door DIR           a directory of yours, mode 0700: door.json in it says address and "
    "token;\n"
    "                       it ends when its standard input is closed, or whoever started it has\n"
    "                       ended\n"
    "\n"
    "Flags say what the loss `policy`, micro-batches, samples and devices are; there is no data "
    "and\n"
    "no reward to name.\n";

constexpr std::size_t kTokenBytes = 32;
constexpr std::size_t kLongestKey = 512;  // longer ones match none (net/access.h)
constexpr std::size_t kMostBodyBytes = std::size_t{512} << 20;
constexpr int64_t kMostSilenceSeconds = 1'000'000'000;
constexpr int64_t kTokensOfAMicroBatch = 4096;
constexpr int64_t kDefaultSamples = 8;
constexpr int64_t kDefaultResponse = 512;

struct TinkerOptions {
  std::filesystem::path door;
  uint16_t port = 8000;
  std::filesystem::path store = "tinker";
  std::string served_name;
  int64_t max_models = 8;
  int64_t max_lora_rank = 128;
  int64_t state_seconds = 30;
  int64_t silence_seconds = 900;
  std::string key_file;
  std::vector<std::string> flags;
};

template <typename T>
T number_of(const std::string& flag, const std::string& word, T low) {
  T number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc{} || end != word.data() + word.size() || number < low)
    throw ConfigError(fmt::format("{} {}: should be a number from {} to {}", flag, word, low,
                                  std::numeric_limits<T>::max()));
  return number;
}

TinkerOptions parse_tinker(std::span<const std::string> arguments) {
  TinkerOptions options;
  std::vector<std::string> given;  // flags of a server of one's own
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const bool has_value = i + 1 < arguments.size();
    const auto value = [&]() -> const std::string& {
      given.push_back(word);
      return arguments[++i];
    };
    if (i == 0 && !word.starts_with("-")) {
      options.flags = {"--hf-checkpoint", word};
    } else if (word == "--door" && has_value) {
      options.door = arguments[++i];
    } else if (word == "--port" && has_value) {
      options.port = number_of<uint16_t>(word, value(), 0);
    } else if (word == "--store" && has_value) {
      options.store = value();
    } else if (word == "--served-model-name" && has_value) {
      options.served_name = value();
    } else if (word == "--max-models" && has_value) {
      options.max_models = number_of<int64_t>(word, value(), 1);
    } else if (word == "--max-lora-rank" && has_value) {
      options.max_lora_rank = number_of<int64_t>(word, value(), 1);
    } else if (word == "--state-seconds" && has_value) {
      options.state_seconds = number_of<int64_t>(word, value(), 0);
    } else if (word == "--silence-seconds" && has_value) {
      options.silence_seconds = number_of<int64_t>(word, value(), 1);
    } else if (word == "--api-key-file" && has_value) {
      options.key_file = value();
    } else {
      options.flags.push_back(word);
    }
  }
  if (!options.door.empty() && !given.empty())
    throw ConfigError(
        fmt::format("{}: not with --door, which says who may reach the service", given.front()));
  return options;
}

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

/// What a run has to say, and requests bring.
void fill_in(config::ParsedFlags& flags) {
  config::RunConfig& config = flags.config;
  config.takes_requests = true;
  const auto fill = [&flags](const char* name, auto& member, int64_t value) {
    if (!flags.says(name)) member = value;
  };
  fill("--rollout-batch-size", config.rollout_batch_size, 1);
  fill("--n-samples-per-prompt", config.n_samples_per_prompt, kDefaultSamples);
  fill("--num-rollout", config.num_rollout, 1);
  fill("--rollout-max-response-len", config.rollout_max_response_len, kDefaultResponse);
  if (!flags.says("--global-batch-size") && !flags.says("--num-steps-per-rollout"))
    config.global_batch_size =
        config.rollout_batch_size.peek() * config.n_samples_per_prompt.peek();
  if (!flags.says("--micro-batch-size") && !flags.says("--use-dynamic-batch-size")) {
    config.use_dynamic_batch_size = true;
    fill("--max-tokens-per-gpu", config.max_tokens_per_gpu, kTokensOfAMicroBatch);
  }
}

void refuse_several_processes(const config::RunConfig& config) {
  if (config.world_size() > 1 || config.num_engine_workers > 0 || config.train_async)
    throw ConfigError(
        "a model that is trained by requests is in one process, on one device; several ranks, "
        "engines elsewhere and --train-async are for slime train");
}

config::ParsedFlags read_flags(const TinkerOptions& options, std::string& model_name) {
  config::ParsedFlags flags = config::parse_flags(options.flags);
  const std::string place = setup::choose_device(flags.config);
  fmt::print(stderr, "slime tinker: {}\n", place);
  model_name = flags.config.hf_checkpoint.peek();
  find_names(flags, hub::Wanted::kModel, /*may_download=*/true, "slime tinker");
  if (flags.config.device.peek() == "cpu") train::keep_freed_memory();
  fill_in(flags);
  config::complete_and_validate(flags);
  refuse_several_processes(flags.config);
  for (const std::string& warning : flags.warnings) fmt::print(stderr, "{}\n", warning);
  if (flags.config.num_threads > 0)
    at::set_num_threads(static_cast<int>(flags.config.num_threads.get()));
  return flags;
}

/// One a line; without a file each key that a client sends is a client.
std::vector<std::string> known_keys(const std::string& file) {
  if (file.empty()) return {};
  std::vector<std::string> keys;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.pop_back();
    if (line.size() > kLongestKey)
      throw ConfigError(
          fmt::format("--api-key-file {}: a key has at most {} bytes", file, kLongestKey));
    if (!line.empty()) keys.push_back(std::move(line));
  }
  if (keys.empty())
    throw ConfigError(fmt::format("--api-key-file {}: has no key, or cannot be read", file));
  return keys;
}

int serve_requests(const TinkerOptions& options) {
  std::string model_name;
  const config::ParsedFlags flags = read_flags(options, model_name);
  const bool has_door = !options.door.empty();
  const SystemClock clock;
  net::HttpServerConfig http;
  http.port = has_door ? 0 : options.port;
  http.serves_own_user_only = has_door;
  http.body_limit_bytes = kMostBodyBytes;
  std::vector<std::string> keys =
      has_door ? std::vector{hex(net::random_bytes(kTokenBytes))} : known_keys(options.key_file);
  tinker::Service service(
      flags.config,
      {.store = has_door ? options.door / "store" : options.store,
       .takes_paths = has_door,
       .model_name = options.served_name.empty() ? model_name : options.served_name,
       .max_models = options.max_models,
       .max_lora_rank = options.max_lora_rank,
       .state_seconds = static_cast<double>(options.state_seconds),
       .longest_silence =
           std::chrono::seconds(std::min(options.silence_seconds, kMostSilenceSeconds))},
      clock);
  const std::string token = has_door ? keys.front() : "";
  tinker::TinkerServer server(http, std::move(keys), service);
  const core::Interrupt interrupt;
  core::Interrupt::leave_words_to_a_display(true);  // they are of runs, which save at their end
  server.start();
  if (has_door) {
    loop::write_door(options.door, {{"url", server.url()}, {"token", token}, {"pid", ::getpid()}});
  }
  fmt::print(stderr, "slime tinker: {} at {}\n", model_name, server.url());
  service.run([&interrupt] { return interrupt.requested().load(); });
  server.stop();
  return 0;
}

}  // namespace

int tinker(std::span<const std::string> arguments) {
  if (asks_for_manual(arguments)) throw ManualAsked{train_manual("slime tinker")};
  if (const auto words = help::words_behind_help(arguments)) {
    if (!words->empty()) return print_answer(train_manual("slime tinker"), *words);
    fmt::print("{}", kTinkerHelp);
    return 0;
  }
  const TinkerOptions options = parse_tinker(arguments);
  if (options.door.empty()) return serve_requests(options);
  loop::require_private_folder(options.door);
  const cluster::ParentWatch watch([&options] {
    std::fputs("slime tinker: the script that uses this model has ended\n", stderr);
    std::error_code ignored;
    std::filesystem::remove_all(options.door, ignored);
    std::_Exit(1);
  });
  try {
    return serve_requests(options);
  } catch (const std::exception& error) {
    loop::write_last_words(options.door, error.what());
    throw;
  }
}

}  // namespace slime::cli
