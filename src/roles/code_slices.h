#pragma once

/// Check of a run whose engines store codes (--rollout-precision fp8): slices of the ranks that hold them are of whole
/// blocks (model/matrix_storage.h). It needs the model's configuration alone.

#include <string>
#include <vector>

#include "config/run_config.h"
#include "model/config.h"

namespace slime::roles {

/// Adds a line for each kind of rank whose slices cut a block: the first such tensor, its rows or columns, and
/// how many ranks would do. Layouts that the model cannot have at all are other checks'.
void check_code_slices(const config::RunConfig& config, const model::ModelConfig& model,
                       std::vector<std::string>& problems);

}  // namespace slime::roles
