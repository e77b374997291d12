#include "core/error.h"

namespace slime {
namespace {

std::string one_per_line(const std::vector<std::string>& problems) {
  std::string text;
  for (const std::string& problem : problems) {
    if (!text.empty()) text += '\n';
    text += problem;
  }
  return text;
}

}  // namespace

ConfigError::ConfigError(const std::vector<std::string>& problems)
    : std::runtime_error(one_per_line(problems)) {}

}  // namespace slime
