#pragma once

/// Order of waiting groups with the oldest tokens first (--buffer-sort-by-staleness).

#include <cstdint>
#include <deque>

#include "buffer/data_source.h"
#include "core/sample.h"

namespace slime::loop {

/// The `count` whose oldest token is of the oldest weights; of equal ones those that have waited
/// longer. Groups without tokens come last.
buffer::WaitingChoice stalest_first(const std::deque<Group>& waiting, int64_t count);

}  // namespace slime::loop
