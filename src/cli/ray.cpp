#include "cli/ray.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "cluster/launch_environment.h"
#include "core/error.h"
#include "core/word_pointers.h"
#include "plugin/host_process.h"
#include "setup/run_devices.h"

namespace slime::cli {

bool is_ray_wanted(const std::string& launcher) {
  if (launcher == "ray") return true;
  // A process that Ray's driver has started finds its place in SLIME_NODE_RANK.
  return launcher == "auto" && cluster::own_environment("RAY_ADDRESS") &&
         !cluster::own_environment("SLIME_NODE_RANK");
}

void become_ray_launcher(const config::RunConfig& config, std::span<const std::string> arguments) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<std::string> words{config.plugin_python, "-u", "-m", "slime.ray_cluster"};
  for (const int places : setup::places_of_nodes(config)) {
    words.emplace_back("--places");
    words.push_back(std::to_string(places));
  }
  words.insert(words.end(),
               {"--resource", config.device == "cpu" ? "CPU" : "GPU", "--timeout",
                fmt::format("{:g}", config.nodes_timeout_seconds), "--", program, "train"});
  words.insert(words.end(), arguments.begin(), arguments.end());
  const std::vector<char*> pointers = word_pointers(words);
  if (const std::filesystem::path folder = plugin::package_folder(); !folder.empty()) {
    const char* own = std::getenv("PYTHONPATH");
    const std::string path = folder.string() + (own == nullptr ? "" : ":" + std::string(own));
    ::setenv("PYTHONPATH", path.c_str(), 1);
  }
  ::execvp(pointers[0], pointers.data());
  throw ConfigError(fmt::format("--launcher ray: cannot run {} (--plugin-python): {}",
                                config.plugin_python, std::strerror(errno)));
}

}  // namespace slime::cli
