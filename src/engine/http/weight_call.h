#pragma once

/// A call that brings new weights: what its body says next to where they are, and its answer.

#include <optional>
#include <string>
#include <vector>

#include "core/field_reader.h"
#include "engine/http/api_state.h"

namespace slime::engine {

struct WeightCall {
  std::optional<std::string> version_name;
  bool aborts_requests = false;
  bool keeps_pause = false;

  /// weight_version and abort_all_requests.
  static WeightCall read(const FieldReader& fields);
  /// The engine takes them under a version of its own, which has the name before its first token is there.
  /// Without a name, as in SGLang, they are called what the weights before them were.
  Expected<void> carry_out(ApiState& state, WeightSource source) const;
};

/// {success, message}, with status 400 where it failed.
net::HttpResponse weight_answer(const Expected<void>& done, std::string message);

}  // namespace slime::engine
