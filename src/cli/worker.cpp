#include "cli/worker.h"

#include "cli/options.h"
#include "cluster/run_identity.h"
#include "roles/worker.h"

namespace slime::cli {

int worker(std::span<const std::string> arguments) {
  CLI::App app{"A rank that trains, or an engine; slime train starts as many as it needs.",
               "slime worker"};
  int control_descriptor = 3;
  app.add_option("--control-descriptor", control_descriptor, "the controller's socket");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  return roles::run_worker(control_descriptor, cluster::take_identity_from_environment());
}

}  // namespace slime::cli
