#include "cli/commands.h"

#include <array>

#include "cli/bench.h"
#include "cli/chat_template.h"
#include "cli/report.h"
#include "cli/tokenize.h"

namespace slime::cli {

std::span<const Command> commands() {
  static constexpr auto kCommands = std::to_array<Command>({
      {"bench", "speed on this machine, as JSON", bench},
      {"report", "a run directory as one HTML page", report},
      {"tokenize", "text to token ids, JSON lines", tokenize},
      {"detokenize", "token ids to text, JSON lines", detokenize},
      {"chat-template", "chat messages to text and token ids, JSON lines", chat_template},
  });
  return kCommands;
}

}  // namespace slime::cli
