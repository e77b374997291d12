#include "roles/rank_memory.h"

#include <ATen/ATen.h>

#include <memory>

#include "estimate/memory_needs.h"
#include "roles/rank_tasks.h"

namespace slime::roles {

estimate::MemoryNeeds rank_memory_needs(const config::RunConfig& config, model::Network& trained,
                                        model::Network* engine, const model::Precision& precision,
                                        const train::TrainConfig& trainer, int64_t longest_prompt) {
  if (engine != nullptr) {
    return estimate::memory_needs(config, *engine, trained, precision, &trainer, layout_of(config),
                                  true, longest_prompt);
  }
  // An evaluation's engine has the whole model.
  model::Precision shape = precision;
  shape.device = at::kMeta;
  const auto whole = model::make_blank_network(trained.config(), shape);
  estimate::MemoryNeeds needs =
      estimate::memory_needs(config, *whole, trained, precision, &trainer, layout_of(config),
                             config.generates(), longest_prompt);
  needs.has_engine = false;
  needs.engine_workspace = needs.engine_weights = needs.staged_weights = 0;
  needs.whole_weights = needs.published_weights = 0;  // in the controller's memory
  return needs;
}

}  // namespace slime::roles
