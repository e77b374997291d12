#pragma once

/// Tensors of one adapter of a network: low-rank pairs beside its matrices (kernels/adapters.h), and whole
/// ones that are trained in the place of the network's own.

#include <cstdint>
#include <deque>

#include "comm/mesh.h"
#include "kernels/adapters.h"
#include "model/adapter_config.h"
#include "model/weights.h"

namespace slime::model {

/// The tensors of one adapter, float32 (float64), with the slices of the network's ranks. Names are those of
/// PEFT's files; pairs of experts that are one tensor have their experts first.
class AdapterTensors {
 public:
  /// For a network; throws ConfigError with the names of modules that its layout cannot have pairs for.
  AdapterTensors(const ModelConfig& config, const Weights& base, const AdapterForm& form,
                 const comm::Mesh& mesh);
  AdapterTensors(const AdapterTensors&) = delete;

  Weights& weights() { return weights_; }
  const Weights& weights() const { return weights_; }
  const AdapterForm& form() const { return form_; }

  /// A as `init` says, B zero, saved tensors as the network's: a function of the seed alone.
  void begin(AdapterInit init, uint64_t seed);

 private:
  friend class Adapters;
  struct Pair {
    size_t parameter;  // among those of the base
    kernels::LowRankPair pair;
  };
  struct Saved {
    size_t parameter;
    kernels::Param copy;
    Tensor base;  // the numbers of the network
  };
  class Maker;

  AdapterForm form_;
  Weights weights_;
  std::deque<Pair> pairs_;
  std::deque<Saved> saved_;
};

}  // namespace slime::model
