#include "engine/http/served_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "engine/http/api_error.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {

std::size_t longest_token_bytes(const text::Tokenizer& tokenizer) {
  std::size_t longest = 1;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id)
    longest = std::max(longest, tokenizer.token_bytes(id).size());
  return longest;
}

void require_tokenizer(const ServedModel& model) {
  if (model.tokenizer == nullptr)
    throw ConfigError("this server has no tokenizer; send token ids to /generate as input_ids");
}

std::vector<TokenId> encode_prompt(const ServedModel& model, std::string_view field,
                                   std::string_view text, bool add_special_tokens) {
  require_tokenizer(model);
  const std::size_t limit =
      static_cast<std::size_t>(model.context_length) * model.longest_token_bytes;
  if (text.size() > limit) {
    throw context_length_exceeded(model.context_length,
                                  fmt::format("{} has {} bytes, and so many tokens hold at most {}",
                                              field, text.size(), limit));
  }
  return model.tokenizer->encode(text, {.add_special_tokens = add_special_tokens});
}

std::filesystem::path confined_directory(const ServedModel& model, std::string_view field,
                                         const std::string& text) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(text, error);
  if (!error) {
    for (const std::filesystem::path& root : model.weight_roots) {
      const std::filesystem::path real_root = std::filesystem::canonical(root, error);
      if (error) continue;
      const auto [end, ignored] =
          std::mismatch(real_root.begin(), real_root.end(), path.begin(), path.end());
      if (end == real_root.end()) return path;
    }
  }
  throw ConfigError(
      fmt::format("{} does not name a directory that this server may read; `slime serve "
                  "--weights-root DIR` allows those below DIR",
                  field));
}

std::filesystem::path default_weight_root(const std::filesystem::path& model_directory) {
  std::error_code error;
  std::filesystem::path directory = std::filesystem::weakly_canonical(model_directory, error);
  if (error) directory = std::filesystem::absolute(model_directory).lexically_normal();
  if (!directory.has_filename()) directory = directory.parent_path();  // "/models/qwen/"
  const std::filesystem::path parent = directory.parent_path();
  return parent == parent.root_path() ? directory : parent;
}

}  // namespace slime::engine
