#pragma once

#include <span>
#include <string>

namespace slime::cli {

/// `slime generate --model DIR [FILE]`: prompts in JSON lines to SGLang's response objects.
int generate(std::span<const std::string> arguments);

}  // namespace slime::cli
