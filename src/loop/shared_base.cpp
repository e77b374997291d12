#include "loop/shared_base.h"

#include <fmt/format.h>

#include "core/error.h"
#include "loop/stations.h"
#include "roles/run_start.h"

namespace slime::loop {

std::unique_ptr<model::Network> SharedBase::another() const {
  model::Precision over = precision_;
  over.shared = &base_->weights();
  return model::make_blank_network(base_->config(), over);
}

std::unique_ptr<model::Network> SharedBase::network(const std::string& directory,
                                                    const model::Precision& precision) {
  if (!base_) {
    base_ = model::load_network(directory, precision);
    directory_ = directory;
    precision_ = precision;
  }
  if (directory != directory_) {
    throw ConfigError(fmt::format(
        "begins with the model {}, and another adapter with {}: adapters over one base begin with "
        "one model (--load of a model directory replaces it)",
        directory, directory_));
  }
  return another();
}

int64_t SharedBase::bytes_beside(int64_t own_elements) const {
  // Numbers, gradients and two moments; in the engine two versions, and one that comes.
  constexpr int64_t kTrained = 4, kServed = 3;
  return static_cast<int64_t>(sizeof(float)) *
         (kTrained * (num_adapter_elements_ - own_elements) + kServed * num_adapter_elements_);
}

std::unique_ptr<roles::Engines> SharedBase::engines(const Stations& run, WeightVersion version) {
  if (!engine_) {
    text_ = setup::load_model_text(run.config.hf_checkpoint, /*needs_template=*/false, {});
    engine_ = std::make_unique<roles::SharedEngine>(
        another(),
        roles::make_engine_config(run.config, text_, run.records.memory.plan().kv_cache_bytes()),
        num_runs_, run.launch.clock);
  }
  return std::make_unique<roles::AdapterEngine>(*engine_, run.config.adapter_name,
                                                *run.topology.network, version);
}

}  // namespace slime::loop
