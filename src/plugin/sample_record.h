#pragma once

/// Samples on the wire of a plug-in host, by the field names of the original's Sample.

#include <string_view>

#include "core/sample.h"
#include "plugin/payload.h"

namespace slime::plugin {

/// Fields that are at their default are left out.
json::object to_record(const Sample& sample, Columns& columns);

/// What a function (`who`: "reward") changed in a sample that it did not return: the status, and fields
/// that core/sample_fields.h calls watched. Others are kept in user_fields. Throws net::FrameError with what is wrong with a value.
void apply_changes(const json::object& changes, const Columns& columns, std::string_view who,
                   Sample& sample);

}  // namespace slime::plugin
