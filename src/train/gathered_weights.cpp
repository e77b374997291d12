// The weights of all ranks, whole, at rank 0.

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "model/stored_parts.h"
#include "model/weight_checksums.h"
#include "train/checkpoint.h"
#include "train/whole_tensors.h"

namespace slime::train {
namespace {

const Tensor& named_constant(model::Network& network, std::string_view name) {
  const auto& constants = network.weights().constants();
  const auto found = std::ranges::find(constants, name, &model::NamedConstant::name);
  check(found != constants.end(), "a constant is one of the model's");
  return found->value;
}

}  // namespace

void gather_weights(Trainer& trainer, const TakeTensor& take) {
  const model::Weights& own = trainer.network().trained();
  const WholeTensors layout(trainer.mesh(), own);
  for (std::size_t i = 0; i < layout.entries().size(); ++i) {
    const Tensor tensor = layout.gather(i, HeldBuffer::whole(own.flat()));
    if (trainer.mesh().rank() == 0) take(layout.entries()[i].name, tensor);
  }
}

void gather_weights(Trainer& trainer, model::Network* whole) {
  std::map<std::string, Tensor> targets;
  std::optional<model::StoredForms> forms;
  if (whole != nullptr) {
    for (model::StoredPart& part : model::stored_parts(whole->trained()))
      targets.emplace(std::move(part.name), std::move(part.value));
    forms.emplace(whole->trained());
  }
  gather_weights(trainer, [&](const std::string& name, const Tensor& tensor) {
    for (const auto& [part, value] : forms->parts_of(name, tensor)) targets.at(part).copy_(value);
  });
  const auto constants = whole_constants(trainer.mesh(), trainer.network().weights());
  for (const model::NamedConstant& constant : constants) {
    if (whole != nullptr) Tensor(named_constant(*whole, constant.name)).copy_(constant.value);
  }
}

WeightChecksums whole_checksums(Trainer& trainer, kernels::MatrixFormat matrices) {
  WeightChecksums checksums;
  std::optional<model::StoredForms> forms;
  if (trainer.mesh().rank() == 0) forms.emplace(trainer.network().config(), matrices);
  gather_weights(trainer, [&](const std::string& name, const Tensor& tensor) {
    std::vector<uint64_t> of_parts;
    for (const auto& part : forms->parts_of(name, tensor))
      of_parts.push_back(model::checksum_of(part.value));
    checksums.push_back({name, model::combined_checksum(of_parts)});
  });
  const auto constants = whole_constants(trainer.mesh(), trainer.network().trained());
  if (trainer.mesh().rank() > 0) return checksums;
  for (const model::NamedConstant& constant : constants)
    checksums.push_back({constant.name, model::checksum_of(constant.value)});
  return checksums;
}

}  // namespace slime::train
