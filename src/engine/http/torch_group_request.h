#pragma once

/// The body of /init_weights_update_group: which group of torch.distributed the server joins, as which ranks.

#include "comm/torch_group.h"
#include "core/json.h"
#include "engine/http/api_state.h"

namespace slime::engine {

inline constexpr const char* kDefaultTorchGroup = "weight_update_group";

/// Throws ConfigError with all problems.
comm::TorchGroupConfig parse_torch_group(const json::object& body, const ApiOptions& options);

}  // namespace slime::engine
