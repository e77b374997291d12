#include "engine/http/served_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "engine/http/api_error.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAllows = "`slime serve --weights-root DIR` allows those below DIR";

/// All of them without links.
bool lies_below(const std::vector<fs::path>& roots, const fs::path& path) {
  return std::ranges::any_of(roots, [&](const fs::path& root) {
    return std::mismatch(root.begin(), root.end(), path.begin(), path.end()).first == root.end();
  });
}

/// Weights and adapters are the files of one folder: those that are links are read where they lead.
void require_links_below(const std::vector<fs::path>& roots, const fs::path& directory,
                         std::string_view field) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    std::error_code none;
    if (!entry.is_symlink(none)) continue;
    const fs::path target = fs::canonical(entry.path(), none);
    if (none || !lies_below(roots, target))
      throw ConfigError(fmt::format(
          "{} names a directory whose {} is a link to what this server may not read; {}", field,
          entry.path().filename().string(), kAllows));
  }
}

}  // namespace

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

fs::path confined_directory(const ServedModel& model, std::string_view field,
                            const std::string& text) {
  std::vector<fs::path> roots;
  std::error_code error;
  for (const fs::path& root : model.weight_roots) {
    fs::path real = fs::canonical(root, error);
    if (!error) roots.push_back(std::move(real));
  }
  const fs::path path = fs::canonical(text, error);
  if (error || !lies_below(roots, path))
    throw ConfigError(
        fmt::format("{} does not name a directory that this server may read; {}", field, kAllows));
  require_links_below(roots, path, field);
  return path;
}

std::filesystem::path default_weight_root(const std::filesystem::path& model_directory) {
  std::error_code error;
  std::filesystem::path directory = std::filesystem::weakly_canonical(model_directory, error);
  if (error) directory = std::filesystem::absolute(model_directory).lexically_normal();
  if (!directory.has_filename()) directory = directory.parent_path();  // "/models/qwen/"
  const std::filesystem::path parent = directory.parent_path();
  // Files of the hub's cache are links: models--A--B/snapshots/REVISION/config.json to blobs/.
  if (parent.filename() == "snapshots" && fs::is_directory(parent.parent_path() / "blobs", error))
    return parent.parent_path();
  return parent == parent.root_path() ? directory : parent;
}

}  // namespace slime::engine
