#include "setup/named_model.h"

#include <fmt/format.h>

#include <exception>
#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "model/config.h"
#include "model/foreign_checkpoint.h"

namespace slime::setup {
namespace {

namespace fs = std::filesystem;

bool is_named(const config::RunConfig& config) {
  return !config.ref_load.empty() && config.ref_load != config.hf_checkpoint;
}

}  // namespace

bool is_model_directory(const std::string& path) {
  std::error_code error;
  if (!fs::exists(fs::path(path) / "config.json", error)) return false;
  try {
    model::read_model_config(path);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

NamedModel named_model(const std::string& path, const train::Warn& warn,
                       const std::string& made_from) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {.directory = "", .why_not = "is no directory"};
  if (is_model_directory(path)) return {.directory = path, .why_not = ""};
  if (const std::string foreign = model::foreign_checkpoint(path, made_from); !foreign.empty())
    return {.directory = "", .why_not = "is " + foreign};
  if (const auto checkpoint = train::find_checkpoint(path, warn))
    return {.directory = checkpoint->directory.string(), .why_not = ""};
  return {.directory = "",
          .why_not = "holds no model (config.json of a family that there is) and no checkpoint"};
}

std::string reference_directory(const config::RunConfig& config, const train::Warn& warn) {
  if (!is_named(config)) return config.hf_checkpoint;
  NamedModel model = named_model(config.ref_load, warn, config.hf_checkpoint);
  if (!model.directory.empty()) return std::move(model.directory);
  throw ConfigError(
      fmt::format("--ref-load {}: {}; without it the reference is --hf-checkpoint, which needs no "
                  "conversion",
                  config.ref_load, model.why_not));
}

std::string beginning_directory(const config::RunConfig& config, const train::Warn& warn) {
  if (!is_named(config) || config.debug_rollout_only) return config.hf_checkpoint;
  NamedModel model = named_model(config.ref_load, warn, config.hf_checkpoint);
  if (model.directory.empty()) {
    warn(fmt::format("--ref-load {}: {}. The actor begins with --hf-checkpoint {}", config.ref_load,
                     model.why_not, config.hf_checkpoint));
    return config.hf_checkpoint;
  }
  warn(
      fmt::format("the actor begins with the weights of --ref-load {}, as in the original where "
                  "--load has no checkpoint; leave --ref-load out to begin with --hf-checkpoint",
                  model.directory));
  return std::move(model.directory);
}

}  // namespace slime::setup
