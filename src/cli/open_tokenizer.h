#pragma once

/// The tokenizer of a model directory for commands that can do without: token ids in and out need
/// none.

#include <filesystem>
#include <memory>
#include <vector>

#include "core/sample.h"
#include "model/config.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::cli {

/// Null when the directory holds no tokenizer files, which standard error says. Throws ConfigError
/// when those it holds are broken.
std::unique_ptr<text::Tokenizer> open_tokenizer(const std::filesystem::path& model_directory);

/// Ids that end a response; standard error says what is odd about them.
std::vector<TokenId> told_end_tokens(const model::ModelConfig& model,
                                     const text::Tokenizer& tokenizer);

}  // namespace slime::cli
