#pragma once

/// Targets with EAGLE-3 draft models, and engines that draft with them.

#include <memory>
#include <string>
#include <utility>

#include "core/temporary_folder.h"
#include "engine_fixture.h"
#include "model/eagle3_for_tests.h"

namespace slime::testing {

inline std::unique_ptr<model::Network> eagle3_target(const std::string& name,
                                                     const std::string& dtype = "float32") {
  return model::load_network(golden_models::directory(name), model::Precision::of(dtype));
}

inline std::shared_ptr<const model::Eagle3> load_files(const model::Eagle3Files& files,
                                                       const model::ModelConfig& target,
                                                       const std::string& dtype = "float32") {
  const TemporaryFolder folder("slime-engine-eagle3");
  files.write(folder.path());
  return model::load_eagle3(folder.path(), target, model::Precision::of(dtype));
}

inline std::shared_ptr<const model::Eagle3> random_model(const std::string& target,
                                                         const std::string& dtype = "float32") {
  const auto config = model::read_model_config(golden_models::directory(target));
  return load_files(model::random_eagle3(config), config, dtype);
}

inline engine::EngineConfig drafting_by(std::shared_ptr<const model::Eagle3> draft, int64_t most,
                                        bool texts = false, bool always = true) {
  engine::EngineConfig config;
  config.drafts = {.most = most, .always = always, .texts = texts, .model = true};
  config.draft_model = std::move(draft);
  return config;
}

}  // namespace slime::testing
