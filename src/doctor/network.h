#pragma once

/// Check of ports, and of the hub of models and data sets: its cache on this machine, and whether it can be reached.

#include <cstdint>

#include "doctor/check.h"
#include "hub/settings.h"

namespace slime::doctor {

/// Whether a server can listen on the loopback address, and on the port that `slime serve` takes.
Check check_ports(std::uint16_t port);

/// The cache, and one request to the hub, which has three seconds. Never a problem: runs work without it.
Checks check_hub(const hub::Settings& settings);

}  // namespace slime::doctor
