#pragma once

/// `slime tokenize` and `slime detokenize`: a model directory's tokenizer on JSON lines.

#include <span>
#include <string>

namespace slime::cli {

/// {"text": ...} -> {"ids": [...]}
int tokenize(std::span<const std::string> arguments);

/// {"ids": [...]} -> {"text": ...}; with --stream also "pieces", the text that each id releases,
/// and "flush".
int detokenize(std::span<const std::string> arguments);

}  // namespace slime::cli
