#include "bench/rank_processes.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>

#include <charconv>
#include <optional>
#include <string_view>

#include "cluster/run_identity.h"
#include "cluster/visible_devices.h"
#include "comm/nccl_mesh.h"
#include "core/error.h"
#include "core/word_pointers.h"
#include "kernels/gpu/gpu.h"

extern char** environ;

namespace slime::bench {
namespace {

int64_t start(std::vector<std::string> words, int rank, const cluster::RunIdentity& identity) {
  std::vector<std::string> variables{
      fmt::format("{}={}", cluster::kVisibleDevices, cluster::visible_device(rank))};
  for (const std::string& setting : cluster::to_environment(identity)) variables.push_back(setting);
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with(fmt::format("{}=", cluster::kVisibleDevices)))
      variables.emplace_back(*variable);
  }
  words.insert(words.begin(), "slime-bench");
  pid_t process = -1;
  if (::posix_spawn(&process, "/proc/self/exe", nullptr, nullptr, word_pointers(words).data(),
                    word_pointers(variables).data()) != 0)
    throw ConfigError("the process of another rank cannot be started");
  return process;
}

}  // namespace

comm::ParallelLayout layout_from(const std::string& text) {
  comm::ParallelLayout layout;
  if (text == "1") return layout;
  std::string_view rest = text;
  for (bool is_last = false; !is_last;) {
    const std::string_view word = rest.substr(0, rest.find('-'));
    is_last = word.size() == rest.size();
    rest.remove_prefix(is_last ? rest.size() : word.size() + 1);
    if (word == "sp") {
      layout.sequence_parallel = true;
      continue;
    }
    if (word == "contiguous") {
      layout.contiguous_context = true;
      continue;
    }
    const std::size_t digits = std::min(word.find_first_of("0123456789"), word.size());
    int size = 0;
    const char* end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data() + digits, end, size);
    int* axis = nullptr;
    for (const auto& [name, field] :
         {std::pair{"dp", &layout.dp}, std::pair{"tp", &layout.tp}, std::pair{"pp", &layout.pp},
          std::pair{"cp", &layout.cp}, std::pair{"chunks", &layout.chunks},
          std::pair{"first", &layout.first_layers}, std::pair{"last", &layout.last_layers}}) {
      if (word.substr(0, digits) == name) axis = field;
    }
    if (axis == nullptr || error != std::errc{} || stop != end || size < 1)
      throw ConfigError(
          fmt::format("--layout {}: \"{}\" is none of dpN, tpN, sp, cpN, contiguous, ppN, chunksN, "
                      "firstN, lastN "
                      "(layers of the first and last stage); joined by dashes",
                      text, word));
    *axis = size;
  }
  return layout;
}

RankProcesses::RankProcesses(const RankOptions& options, OnEnd on_end) {
  const comm::ParallelLayout layout = layout_from(options.layout);
  const int size = layout.world_size();
  kernels::open_gpu();
  if (size == 1) return;
  std::optional<comm::Rendezvous> rendezvous;
  comm::SocketMeshConfig config{.rank = options.rank,
                                .layout = layout,
                                .port = options.port,
                                .token = cluster::take_identity_from_environment().token,
                                .timeout = std::chrono::seconds(120),
                                .on_end = std::move(on_end)};
  if (options.rank == 0) {
    if (const int devices = kernels::count_gpus(); devices < size)
      throw ConfigError(
          fmt::format("--layout {}: needs {} GPUs, {} are visible", options.layout, size, devices));
    config.port = rendezvous.emplace().port();
    config.token = cluster::make_run_token();
    for (int rank = 1; rank < size; ++rank) {
      std::vector<std::string> words = options.command;
      for (const std::string& word : {std::string("--rank"), std::to_string(rank),
                                      std::string("--port"), std::to_string(config.port)})
        words.push_back(word);
      processes_.push_back(start(std::move(words), rank, {.token = config.token}));
    }
  }
  mesh_ = comm::make_nccl_mesh(config, rendezvous ? &*rendezvous : nullptr);
}

RankProcesses::~RankProcesses() {
  mesh_.reset();
  for (const int64_t process : processes_) ::waitpid(static_cast<pid_t>(process), nullptr, 0);
}

}  // namespace slime::bench
