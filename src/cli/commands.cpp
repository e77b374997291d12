#include "cli/commands.h"

#include <array>

namespace slime::cli {

std::span<const Command> commands() {
  static constexpr std::array<Command, 0> kCommands{};
  return kCommands;
}

}  // namespace slime::cli
