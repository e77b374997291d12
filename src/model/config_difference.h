#pragma once

/// Difference of two model configurations that share tensor shapes but not the computation
/// (rope_theta, norm epsilon).

#include <string>
#include <vector>

#include "model/config.h"

namespace slime::model {

/// Fields of config.json by which `fresh` means another computation than `running`, each with both
/// values: "rope_theta 1000000 (here 10000)". Empty: the same network with other weights. What only
/// says where a model ends, how it is stored or how it was begun is not looked at.
std::vector<std::string> differing_fields(const ModelConfig& running, const ModelConfig& fresh);

}  // namespace slime::model
