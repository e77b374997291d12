#pragma once

/// `slime ledger`: proves that a run lost no prompt and no token, or tells what became of one
/// prompt.

#include <span>
#include <string>

namespace slime::cli {

int ledger(std::span<const std::string> arguments);

}  // namespace slime::cli
