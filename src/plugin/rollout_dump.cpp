#include "plugin/rollout_dump.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "core/child_process.h"
#include "core/error.h"
#include "plugin/host_process.h"

namespace slime::plugin {
namespace {

constexpr std::size_t kMostWords = 4096;  // of what Python says

}  // namespace

bool is_torch_file(const std::filesystem::path& path) {
  std::array<char, 4> head{};
  std::ifstream file(path, std::ios::binary);
  return file.read(head.data(), head.size()) && std::memcmp(head.data(), "PK\x03\x04", 4) == 0;
}

ReadableDump::ReadableDump(const std::filesystem::path& path) : path_(path) {
  if (!is_torch_file(path)) return;
  folder_.emplace("slime-dump");
  path_ = folder_->path() / "samples.jsonl";
  convert_rollout_dump(path, path_);
}

void convert_rollout_dump(const std::filesystem::path& from, const std::filesystem::path& to) {
  const char* own = std::getenv("SLIME_PYTHON");
  const std::string python = own == nullptr ? "python3" : own;
  const ChildEnd end = run_child(
      {.words = {python, "-m", "slime.checkpoints.rollout_dump", from.string(), to.string()},
       .is_on_path = true,
       .environment = python_environment(),
       .reads = ChildPlan::Stream::kErrors,
       .most_bytes = kMostWords,
       .drops_the_rest = true});
  if (end.how == ChildEnd::How::kNotStarted) {
    throw ConfigError(fmt::format("{}: {} is needed to convert it, and could not be started: {}",
                                  from.string(), python, std::strerror(end.number)));
  }
  if (end.is_success()) return;
  throw ConfigError(
      fmt::format("{}: {}", from.string(),
                  end.text.empty() ? "its conversion ended without a word" : end.text));
}

}  // namespace slime::plugin
