#pragma once

/// Groups on the wire of a plug-in host: lists of samples.

#include <span>
#include <string_view>

#include "core/sample.h"
#include "plugin/host.h"

namespace slime::plugin {

json::array to_records(const Group& group, Columns& columns);
json::array to_records(std::span<const Group> groups, Columns& columns);

/// What a function (`who`: "filter") changed in samples that it was shown: the answer's `changes`, if
/// it has any. Throws net::FrameError.
void take_changes(const Answer& answer, std::string_view who, Group& group);
void take_changes(const Answer& answer, std::string_view who, std::span<Group> groups);

}  // namespace slime::plugin
