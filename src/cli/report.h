#pragma once

/// `slime report RUN_DIR [-o FILE]`: a run as one HTML page (report/report.h).

#include <span>
#include <string>

namespace slime::cli {

int report(std::span<const std::string> arguments);

}  // namespace slime::cli
