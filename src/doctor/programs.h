#pragma once

/// Check of the Python of users' functions and of what other programs this one uses.

#include <string>

#include "doctor/check.h"

namespace slime::doctor {

/// Starts `python` as a plug-in host is started, and asks for its version and packages. It has ten seconds.
Checks check_python(const std::string& python);
/// Bubblewrap and what the kernel lets it do, as `slime sandbox --check` finds them.
Check check_sandbox();

}  // namespace slime::doctor
