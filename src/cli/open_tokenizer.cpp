#include "cli/open_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "engine/end_tokens.h"

namespace slime::cli {
namespace {

bool is_tokenizer_file(const std::filesystem::directory_entry& entry) {
  const std::filesystem::path& path = entry.path();
  return path.filename() == "tokenizer.json" || path.filename() == "tiktoken.model" ||
         path.extension() == ".tiktoken";
}

}  // namespace

std::unique_ptr<text::Tokenizer> open_tokenizer(const std::filesystem::path& model_directory) {
  std::error_code error;
  const std::filesystem::directory_iterator files(model_directory, error);
  if (!error && std::none_of(begin(files), end(files), is_tokenizer_file)) {
    fmt::print(stderr, "slime: {} has no tokenizer: token ids in and out, no text\n",
               model_directory.string());
    return nullptr;
  }
  return text::Tokenizer::load(model_directory);
}

std::vector<TokenId> told_end_tokens(const model::ModelConfig& model,
                                     const text::Tokenizer& tokenizer) {
  const engine::EndTokens end = engine::end_tokens(model, &tokenizer);
  for (const std::string& line : end.notes) fmt::print(stderr, "slime: {}\n", line);
  return end.ids;
}

}  // namespace slime::cli
