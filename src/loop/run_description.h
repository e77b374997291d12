#pragma once

/// Contents of run.json: settings, model, starts and beginning of a run.

#include "core/json.h"
#include "loop/stations.h"

namespace slime::loop {

/// `unknown`: flags that the table does not have, for functions of the user's. Reads the run.json of the
/// starts before this one.
json::object describe(const Stations& run, const json::object& unknown);

}  // namespace slime::loop
