#pragma once

/// Whole samples that come back from a plug-in host: what a user's function made or left of one, checked,
/// in our own record.

#include <cstdint>
#include <limits>

#include "core/sample.h"
#include "plugin/payload.h"

namespace slime::plugin {

/// What a sample must keep to.
struct SampleLimits {
  int64_t vocab_size = int64_t{1} << 31;                     // ids are below it
  int64_t max_tokens = std::numeric_limits<int64_t>::max();  // of prompt and response
  bool needs_log_probs = false;                              // of a sample that is sampled
  bool needs_support = false;  // and those of all ids that each token could have been drawn from
  int64_t needs_head = 0;      // or of so many of the likeliest; 0: of none
};

/// `record` is a Sample on the wire, `given` the one that the function was called with: ordinals are
/// its own, everything else is the record's. Fields that our Sample has no place for are kept in
/// user_fields. Versions that the record says nothing about are those of `given`, as far as its tokens
/// are the same. Throws net::FrameError that says which field is wrong, and what would be right.
Sample read_sample(const json::object& record, const Columns& columns, const Sample& given,
                   const SampleLimits& limits);

/// Throws net::FrameError for a sample that is sampled to its end and lacks what training needs.
void check_sampled(const Sample& sample, const SampleLimits& limits);

}  // namespace slime::plugin
