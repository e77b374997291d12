#pragma once

/// Version of this program, "1.2.3": what `slime --version` says.

#include <string_view>

namespace slime {

std::string_view program_version();

}  // namespace slime
