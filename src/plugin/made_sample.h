#pragma once

/// The sample that a user's generate function made: whatever it set, checked, in our own record.

#include <cstdint>

#include "core/sample.h"
#include "plugin/payload.h"

namespace slime::plugin {

/// What a made sample must keep to.
struct SampleLimits {
  int64_t vocab_size = 0;  // ids are below it
  int64_t max_tokens = 0;  // of prompt and response
  bool needs_log_probs = false;
};

/// `record` is a Sample on the wire, `given` the one that the function was called with: ordinals are
/// its own, everything else is the record's. Fields that our Sample has no place for are kept in
/// user_fields. A status that was left at pending is completed. Throws net::FrameError that says which
/// field is wrong, and what would be right.
Sample made_sample(const json::object& record, const Columns& columns, const Sample& given,
                   const SampleLimits& limits);

}  // namespace slime::plugin
