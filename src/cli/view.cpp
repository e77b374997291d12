#include "cli/view.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "cli/options.h"
#include "cli/serving.h"
#include "cluster/parent_watch.h"
#include "core/error.h"
#include "net/http_server.h"
#include "view/run_catalog.h"
#include "view/view_routes.h"

namespace slime::cli {
namespace {

constexpr int kUsualPort = 7007;  // so that links to a view stay the same
constexpr int kLowPriority = 10;
constexpr std::chrono::milliseconds kViewStopGrace{200};  // streams never end by themselves

/// On the usual port, or on a free one where that is taken.
std::unique_ptr<net::HttpServer> server_on(net::HttpServerConfig config, std::optional<int> port,
                                           view::RunCatalog& catalog, view::SampleStore& store) {
  config.port = static_cast<std::uint16_t>(port.value_or(kUsualPort));
  try {
    return std::make_unique<net::HttpServer>(config, view::view_routes(catalog, store));
  } catch (const ConfigError&) {
    if (port) throw;
  }
  config.port = 0;
  return std::make_unique<net::HttpServer>(config, view::view_routes(catalog, store));
}

}  // namespace

int view(std::span<const std::string> arguments) {
  std::vector<std::filesystem::path> folders;
  std::optional<int> port;
  bool is_of_run = false;
  CLI::App app(
      "Serves runs as a page of this machine: curves as they grow, samples, alarms "
      "(docs/view.md). On another machine: ssh -L 7007:127.0.0.1:7007 HOST.",
      "slime view");
  app.add_option("RUN", folders,
                 "run directories, or folders of several runs; default: runs, or the current one");
  app.add_option("--port", port,
                 "port; 0 picks a free one; default: 7007, or a free one where that is taken")
      ->check(CLI::Range(0, 65535));
  app.add_flag("--of-run", is_of_run, "end with the process that started this; the run's --view");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  if (folders.empty()) folders.emplace_back(std::filesystem::is_directory("runs") ? "runs" : ".");

  if (is_of_run) ::setpriority(PRIO_PROCESS, 0, kLowPriority);
  const sigset_t stop_signals = block_stop_signals();
  view::RunCatalog catalog(folders, is_of_run);
  view::SampleStore store;
  net::HttpServerConfig config{.num_threads = 4, .serves_own_user_only = true};
  config.body_limit_bytes = 1 << 10;  // nothing is sent to it
  config.max_connections = 256;
  const std::unique_ptr<net::HttpServer> server = server_on(config, port, catalog, store);
  server->start();
  // Not fmt::print, which throws when nobody reads.
  std::fputs(fmt::format("view: {} shows {}\n", server->url(), folders.front().string()).c_str(),
             stdout);
  std::fflush(stdout);
  std::optional<cluster::ParentWatch> watch;
  if (is_of_run) watch.emplace([] { ::kill(::getpid(), SIGTERM); });
  int signal = 0;
  sigwait(&stop_signals, &signal);
  server->stop(kViewStopGrace);
  return 0;
}

}  // namespace slime::cli
