#pragma once

/// slime serve: a model behind SGLang's and OpenAI's HTTP routes until SIGINT or SIGTERM.

#include <span>
#include <string>

namespace slime::cli {

int serve(std::span<const std::string> arguments);

}  // namespace slime::cli
