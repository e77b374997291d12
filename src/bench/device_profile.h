#pragma once

/// Profile of a GPU trace (kernels/trace.h): time by kernel, collectives that nothing hides, and
/// idle time.

#include <vector>

#include "core/json.h"
#include "kernels/trace.h"

namespace slime::bench {

/// {"span_ms", "compute_ms", "collectives_ms", "exposed_collectives_ms", "idle_ms", "short_kernels_ms",
/// "groups": {GROUP: ms}, "kernels": [[name, count, ms], ...], "added": [[name, ms], ...], "gaps":
/// [[before, behind, ms], ...]}: of `repeats` equal steps the mean of one.
/// Compute is the time in which something other than a collective runs, exposed collectives that in
/// which only they do; with idle they add up to the span. Short kernels take less than ten
/// microseconds each. Kernels: the longest, summed by name. Added: the same by what kernels add to
/// the time, from the end of those before them; one that was launched early (programmatic dependent
/// launch) waits inside of its own milliseconds, not inside of these. Gaps: where nothing runs longest,
/// one by one, with the kernels before and behind.
json::object device_profile(const std::vector<kernels::TracedKernel>& kernels, int repeats);

}  // namespace slime::bench
