#pragma once

/// Check of the GPUs as a run would find them: driver, visibility, the library of kernels, its architectures.

#include <filesystem>

#include "doctor/check.h"

namespace slime::doctor {

/// Opens the first visible GPU where this program has kernels for it, which is what a run does first.
Checks check_devices(const std::filesystem::path& proc = "/proc");

}  // namespace slime::doctor
