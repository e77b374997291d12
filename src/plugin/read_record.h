#pragma once

/// Whole samples that come back from a plug-in host.

#include <string>
#include <vector>

#include "core/sample.h"
#include "plugin/payload.h"

namespace slime::plugin {

/// `before` as `record` has it: all fields but ordinal, group and place in the group, which are ours.
/// Names of fields that a sample has no place for are added to `without_place`. Throws net::FrameError
/// with what is wrong with a value: a list of another length than the response, an unknown status.
Sample read_record(const json::object& record, const Columns& columns, const Sample& before,
                   std::vector<std::string>& without_place);

}  // namespace slime::plugin
