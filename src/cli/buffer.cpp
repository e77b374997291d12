#include "cli/buffer.h"

#include <fmt/format.h>

#include <cstdio>

#include "buffer/rollout_store.h"
#include "cli/buffer_generator.h"
#include "cli/buffer_routes.h"
#include "cli/options.h"
#include "cli/serving.h"
#include "net/http_server.h"

namespace slime::cli {
namespace {

constexpr std::chrono::seconds kBufferStopGrace{5};

struct BufferOptions {
  slime::buffer::RolloutStoreConfig store;
  GeneratorConfig generator;
  net::HttpServerConfig http;
  std::string api_key_file;
  double max_gib = 4;
  int64_t body_limit_mib = 64;
};

void add_buffer_options(CLI::App& app, BufferOptions& options) {
  app.add_option("--folder", options.store.folder,
                 "where what was written lies; a restart goes on from there")
      ->required();
  app.add_option("--host", options.http.host,
                 "address to listen on; other than loopback needs a key");
  app.add_option("--port", options.http.port, "port; 0 picks a free one")->capture_default_str();
  app.add_option("--group-size", options.store.group_size,
                 "items of a group, until /start_rollout says num_repeat_per_sample")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--generator", options.generator.files,
                 "file.py or package.module of yours with TASK_TYPE and run_rollout(data), which "
                 "/start_rollout runs; may be given several times");
  app.add_option("--plugin-python", options.generator.python, "interpreter that runs it")
      ->capture_default_str();
  app.add_option("--max-items", options.store.max_items, "items that may wait")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000'000}))
      ->capture_default_str();
  app.add_option("--max-gib", options.max_gib, "memory of the items that wait")
      ->check(finite_range(0.001, 4096))
      ->capture_default_str();
  app.add_option("--body-limit-mib", options.body_limit_mib, "largest item")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--api-key-file", options.api_key_file,
                 "file with the key that clients send as a bearer token (or set SLIME_API_KEY)");
  options.http.access.has_host_flag = true;
  app.add_option("--allowed-host", options.http.access.allowed_hosts,
                 "further name in Host and Origin of requests");
  app.add_option("--max-connections", options.http.max_connections, "open connections")
      ->check(CLI::Range(1, 1 << 20));
}

}  // namespace

int buffer(std::span<const std::string> arguments) {
  BufferOptions options;
  options.http.port = 8889;
  CLI::App app(
      "Finished rollouts between generators and a trainer, kept on the disk (docs/buffer.md).",
      "slime buffer");
  add_buffer_options(app, options);
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;

  options.http.access.api_key = read_key(options.api_key_file, "SLIME_API_KEY");
  options.http.body_limit_bytes = static_cast<std::size_t>(options.body_limit_mib) << 20U;
  options.store.max_bytes = static_cast<std::size_t>(options.max_gib * (1U << 30U));
  options.store.queue_limit = static_cast<std::size_t>(options.http.max_connections) + 1;
  options.generator.folder = options.store.folder;
  const sigset_t stop_signals = block_stop_signals();

  slime::buffer::RolloutStore store(options.store);
  BufferGenerator generator(options.generator);
  net::HttpServer server(options.http, buffer_routes(store, generator));
  server.start();
  // Not fmt::print, which throws when nobody reads.
  std::fputs(
      fmt::format("ready: {} keeps rollouts in {}\n", server.url(), options.store.folder.string())
          .c_str(),
      stdout);
  if (store.torn_bytes() > 0) {
    std::fputs(fmt::format("the log ended in {} bytes of a record that nobody was told of; they "
                           "are cut off\n",
                           store.torn_bytes())
                   .c_str(),
               stdout);
  }
  std::fflush(stdout);
  int signal = 0;
  sigwait(&stop_signals, &signal);
  server.stop(kBufferStopGrace);
  return 0;
}

}  // namespace slime::cli
