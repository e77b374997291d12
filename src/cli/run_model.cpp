#include "cli/run_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "cli/by_name.h"
#include "cli/models_below.h"
#include "core/error.h"
#include "core/json.h"
#include "model/adapter_files.h"
#include "train/checkpoint_directory.h"

namespace slime::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRunsFolder = "runs/";

std::optional<int64_t> step_of(std::string_view word) {
  int64_t step = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), step);
  if (error != std::errc() || end != word.data() + word.size() || step < 0) return std::nullopt;
  return step;
}

/// Checkpoints of a run with adapters hold those alone; run.json names the model that they are for.
ModelPlace place_of(const fs::path& run, const fs::path& checkpoint) {
  if (!model::has_adapter(checkpoint)) return {.directory = checkpoint, .adapter = {}};
  const json::value record = read_json_file(run / "run.json");
  const json::value* model =
      record.is_object() ? record.get_object().if_contains("model") : nullptr;
  const fs::path base = model != nullptr && model->is_string()
                            ? fs::path(std::string(model->get_string()))
                            : fs::path();
  if (!fs::is_directory(base))
    throw ConfigError(
        fmt::format("{}: has an adapter, and the model that it is for is not there: {}",
                    checkpoint.string(), base.empty() ? "run.json names none" : base.string()));
  return {.directory = base, .adapter = checkpoint};
}

}  // namespace

bool is_run_directory(const fs::path& folder) {
  std::error_code none;
  return fs::is_regular_file(folder / "run.json", none) && !fs::exists(folder / "COMMITTED", none);
}

int64_t step_of_checkpoint(const fs::path& checkpoint) {
  const std::string name = checkpoint.filename().string();
  constexpr std::string_view kBegin = "iter_";
  if (!name.starts_with(kBegin)) return -1;
  return step_of(std::string_view(name).substr(kBegin.size())).value_or(-1);
}

std::optional<RunModel> run_model(const std::string& word) {
  fs::path folder = word;
  std::optional<int64_t> step;
  if (!is_run_directory(folder)) {
    const std::size_t at = word.rfind('@');
    if (at == std::string::npos || !is_run_directory(word.substr(0, at))) return std::nullopt;
    folder = word.substr(0, at);
    step = step_of(std::string_view(word).substr(at + 1));
    if (!step)
      throw ConfigError(fmt::format("{}: behind @ comes the number of a rollout step", word));
  }
  std::error_code error;
  const fs::path latest = fs::canonical(folder / "latest", error);
  if (error)
    throw ConfigError(
        fmt::format("{}: no checkpoint yet. A run saves one at its end, when it is interrupted "
                    "(Ctrl-C, once a step is trained), and with --save-interval N after every N "
                    "rollouts; the same command continues the run",
                    folder.string()));
  if (!step) return RunModel{folder, latest, step_of_checkpoint(latest)};
  const fs::path root = latest.parent_path();
  const std::vector<int64_t> steps = train::committed_iterations(root);
  if (std::ranges::find(steps, *step) == steps.end())
    throw ConfigError(fmt::format("{}: there is no checkpoint of step {}; there are those of {}",
                                  folder.string(), *step, fmt::join(steps, ", ")));
  return RunModel{folder, root / train::checkpoint_name(*step), *step};
}

ModelPlace model_of_word(const std::string& word, const std::string& whose) {
  if (const auto run = run_model(word)) return place_of(run->run, run->checkpoint);
  std::error_code none;
  // Runs are in "runs", also where there are none yet; hf://runs/NAME would be a model of the hub.
  const bool is_name =
      hub::name_not_path(word, hub::Kind::kModel) && !word.starts_with(kRunsFolder);
  if (!is_name && !fs::exists(word, none)) {
    const std::string guess = guess_of_model(word);
    throw ConfigError(fmt::format("MODEL {}: no such file or directory{}", word,
                                  guess.empty() ? models_beside(word) : guess));
  }
  std::string directory = model_by_name(word, hub::Wanted::kModel, "MODEL", whose);
  if (!fs::exists(fs::path(directory) / "config.json", none) && !model::has_adapter(directory)) {
    if (const std::string below = models_below(directory); !below.empty())
      throw ConfigError(fmt::format("MODEL {}: is no model directory; {}", word, below));
  }
  return {.directory = std::move(directory), .adapter = {}};
}

}  // namespace slime::cli
