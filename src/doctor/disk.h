#pragma once

/// Check of the folder that runs are written to: permission, room, speed.

#include <filesystem>

#include "doctor/check.h"

namespace slime::doctor {

/// `folder` need not be there: it is looked at where it would be made. Writes 64 MiB into a file without name, which
/// is gone afterwards.
Checks check_disk(const std::filesystem::path& folder);

}  // namespace slime::doctor
