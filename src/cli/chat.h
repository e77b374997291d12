#pragma once

#include <span>
#include <string>

namespace slime::cli {

/// `slime chat MODEL|RUN|URL`: questions and answers in a terminal, or through a pipe.
int chat(std::span<const std::string> arguments);

}  // namespace slime::cli
