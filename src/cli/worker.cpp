#include "cli/worker.h"

#include <chrono>
#include <string>

#include "cli/options.h"
#include "cluster/run_identity.h"
#include "roles/kept_engine.h"
#include "roles/worker.h"

namespace slime::cli {

int worker(std::span<const std::string> arguments) {
  CLI::App app{"A rank that trains, or an engine; slime train starts as many as it needs.",
               "slime worker"};
  int control_descriptor = 3;
  app.add_option("--control-descriptor", control_descriptor, "the controller's socket");
  std::string session_socket;
  double session_minutes = 60;
  app.add_option("--session-socket", session_socket,
                 "an engine that outlives its trainer: where it listens");
  app.add_option("--session-minutes", session_minutes, "that it waits without a trainer")
      ->check(finite_range(0, 100'000));
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  const cluster::RunIdentity identity = cluster::take_identity_from_environment();
  if (session_socket.empty()) return roles::run_worker(control_descriptor, identity);
  const auto patience = std::chrono::duration<double>(60 * session_minutes);
  return roles::run_kept_engine(
      session_socket, std::chrono::duration_cast<std::chrono::milliseconds>(patience), identity);
}

}  // namespace slime::cli
