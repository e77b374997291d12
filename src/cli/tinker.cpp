#include "cli/tinker.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <vector>

#include "cli/by_name.h"
#include "cli/options.h"
#include "cli/serving.h"
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
    "slime tinker: a model that is trained and sampled by requests (docs/python.md).\n\n"
    "  slime tinker --door DIR FLAGS OF slime train            for slime.start of Python\n"
    "  slime tinker --port N --store DIR FLAGS OF slime train  for clients of the protocol\n\n"
    "  --door DIR           a directory of yours, mode 0700: door.json in it says address and "
    "token;\n"
    "                       it ends when its standard input is closed, or whoever started it has\n"
    "                       ended\n"
    "  --port N             listens on 127.0.0.1:N\n"
    "  --store DIR          of weights that are saved by name\n"
    "  --api-key-file FILE  clients have to know the key in its first line\n\n"
    "Flags say what the loss `policy`, micro-batches, samples and devices are; there is no data "
    "and\n"
    "no reward to name.\n";

constexpr std::size_t kTokenBytes = 32;
constexpr std::size_t kMostBodyBytes = std::size_t{512} << 20;
constexpr int64_t kTokensOfAMicroBatch = 4096;
constexpr int64_t kDefaultSamples = 8;
constexpr int64_t kDefaultResponse = 512;

struct TinkerOptions {
  std::filesystem::path door;
  std::optional<uint16_t> port;
  std::filesystem::path store;
  std::string key_file;
  std::vector<std::string> flags;
};

uint16_t port_of(const std::string& word) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), port);
  if (error != std::errc{} || end != word.data() + word.size())
    throw ConfigError(fmt::format("--port {}: should be a number from 0 to 65535", word));
  return port;
}

TinkerOptions parse_tinker(std::span<const std::string> arguments) {
  TinkerOptions options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const bool has_value = i + 1 < arguments.size();
    if (word == "--door" && has_value) {
      options.door = arguments[++i];
    } else if (word == "--port" && has_value) {
      options.port = port_of(arguments[++i]);
    } else if (word == "--store" && has_value) {
      options.store = arguments[++i];
    } else if (word == "--api-key-file" && has_value) {
      options.key_file = arguments[++i];
    } else {
      options.flags.push_back(word);
    }
  }
  if (options.door.empty() == !options.port)
    throw ConfigError("--door DIR or --port N: one of them says who may reach the service");
  if (options.port && options.store.empty())
    throw ConfigError("--store DIR: is missing; weights are saved there");
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

int serve_requests(const TinkerOptions& options) {
  std::string model_name;
  const config::ParsedFlags flags = read_flags(options, model_name);
  const bool has_door = !options.door.empty();
  const SystemClock clock;
  net::HttpServerConfig http;
  http.port = options.port.value_or(0);
  http.serves_own_user_only = has_door;
  http.body_limit_bytes = kMostBodyBytes;
  http.access.api_key = has_door ? hex(net::random_bytes(kTokenBytes))
                                 : read_key(options.key_file, "SLIME_TINKER_API_KEY");
  tinker::Service service(flags.config,
                          {.store = has_door ? options.door / "store" : options.store,
                           .takes_paths = has_door,
                           .model_name = model_name},
                          clock);
  tinker::TinkerServer server(http, service);
  const core::Interrupt interrupt;
  core::Interrupt::leave_words_to_a_display(true);  // they are of runs, which save at their end
  server.start();
  if (has_door) {
    loop::write_door(options.door,
                     {{"url", server.url()}, {"token", http.access.api_key}, {"pid", ::getpid()}});
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
