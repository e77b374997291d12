#include "text/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/regular_file.h"
#include "text/tokenizer/tiktoken_file.h"
#include "text/tokenizer/tokenizer_config.h"
#include "text/tokenizer/tokenizer_json.h"
#include "text/tokenizer/tokenizer_parts.h"
#include "text/unicode/unicode.h"

namespace slime::text {
namespace {

constexpr std::size_t kFileLimitBytes = std::size_t{256} << 20;
/// Positions are 32 bits, and some steps make text longer.
constexpr std::size_t kTextLimitBytes = std::size_t{1} << 30;

json::value read_if_present(const std::filesystem::path& path) {
  return std::filesystem::exists(path) ? read_json_file(path, kFileLimitBytes) : json::value();
}

/// The directory's tiktoken file; the first by name when there are several.
std::optional<std::filesystem::path> find_tiktoken_file(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::filesystem::path& path = entry.path();
    if (path.extension() == ".tiktoken" || path.filename() == "tiktoken.model")
      found.push_back(path);
  }
  if (found.empty()) return std::nullopt;
  return *std::min_element(found.begin(), found.end());
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::load(const std::filesystem::path& directory) {
  if (!std::filesystem::is_directory(directory)) {
    throw ConfigError(
        fmt::format("{}: is no directory; a model directory is needed", directory.string()));
  }
  const json::value config = read_if_present(directory / "tokenizer_config.json");
  const json::value special_tokens_map = read_if_present(directory / "special_tokens_map.json");
  const std::filesystem::path json_file = directory / "tokenizer.json";
  TokenizerDefinition definition;
  if (std::filesystem::exists(json_file)) {
    definition =
        read_tokenizer_json(read_json_file(json_file, kFileLimitBytes), json_file.string());
  } else if (const auto ranks = find_tiktoken_file(directory)) {
    definition = read_tiktoken_file(read_regular_file(*ranks, kFileLimitBytes, "ranks"), config,
                                    ranks->string());
  } else {
    throw ConfigError(fmt::format(
        "{}: holds neither tokenizer.json nor a tiktoken file (*.tiktoken, tiktoken.model)",
        directory.string()));
  }
  apply_tokenizer_config(config, special_tokens_map, directory.string(), definition);
  return std::unique_ptr<Tokenizer>(
      new Tokenizer(std::make_unique<const Parts>(std::move(definition), directory.string())));
}

std::unique_ptr<Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json,
                                                std::string_view config_json) {
  TokenizerDefinition definition =
      read_tokenizer_json(parse_json(tokenizer_json, "tokenizer.json"), "tokenizer.json");
  const json::value config =
      config_json.empty() ? json::value() : parse_json(config_json, "tokenizer_config.json");
  apply_tokenizer_config(config, json::value(), ".", definition);
  return std::unique_ptr<Tokenizer>(
      new Tokenizer(std::make_unique<const Parts>(std::move(definition), "tokenizer.json")));
}

std::unique_ptr<Tokenizer> Tokenizer::from_tiktoken(std::string_view ranks,
                                                    std::string_view config_json) {
  const json::value config =
      config_json.empty() ? json::value() : parse_json(config_json, "tokenizer_config.json");
  TokenizerDefinition definition = read_tiktoken_file(ranks, config, "tiktoken.model");
  apply_tokenizer_config(config, json::value(), ".", definition);
  return std::unique_ptr<Tokenizer>(
      new Tokenizer(std::make_unique<const Parts>(std::move(definition), "tiktoken.model")));
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > kTextLimitBytes) {
    throw ConfigError(fmt::format("a text of {} bytes is above the tokenizer's limit of {}",
                                  text.size(), kTextLimitBytes));
  }
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = to_valid_utf8(text);
    text = repaired;
  }
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3 + 8);
  const TokenizerDefinition& definition = parts_->definition;
  if (options.add_special_tokens) ids = definition.prefix;
  parts_->encode(text, options.split_special_tokens, ids);
  if (options.add_special_tokens)
    ids.insert(ids.end(), definition.suffix.begin(), definition.suffix.end());
  return ids;
}

std::vector<PlacedToken> Tokenizer::encode_placed(std::string_view text,
                                                  std::span<const uint32_t> seams) const {
  if (text.size() > kTextLimitBytes || !is_valid_utf8(text)) {
    throw ConfigError(fmt::format("a text of {} bytes: should be UTF-8 of at most {} bytes",
                                  text.size(), kTextLimitBytes));
  }
  std::vector<TokenId> ids;
  std::vector<Parts::Stretch> stretches;
  parts_->encode(text, false, ids, seams, &stretches);
  std::vector<PlacedToken> placed;
  placed.reserve(ids.size());
  for (std::size_t i = 0; i < stretches.size(); ++i) {
    const auto [range, first] = stretches[i];
    const std::size_t last = i + 1 < stretches.size() ? stretches[i + 1].first_token : ids.size();
    std::vector<std::string_view> pieces;
    for (std::size_t k = first; k < last; ++k) pieces.push_back(token_bytes(ids[k]));
    const std::string_view source = text.substr(range.begin, range.end - range.begin);
    const auto cuts = lay_over(pieces, source);
    if (!cuts) {
      throw ConfigError(fmt::format(
          "the tokens of \"{}...\" cannot be laid over the text: the tokenizer rewrites it",
          to_valid_utf8(source.substr(0, 40))));
    }
    for (std::size_t k = first; k < last; ++k) {
      const auto added = parts_->added_kinds.find(ids[k]);
      placed.push_back({ids[k], range.begin + (*cuts)[k - first],
                        range.begin + (*cuts)[k - first + 1],
                        added == parts_->added_kinds.end() ? TokenKind::kText : added->second});
    }
  }
  return placed;
}

const std::vector<TokenId>& Tokenizer::prefix() const { return parts_->definition.prefix; }

std::vector<std::string> Tokenizer::added_tokens() const {
  std::vector<std::string> spellings;
  for (const auto& [content, token] : parts_->definition.added_tokens) spellings.push_back(content);
  return spellings;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  return parts_->decode(ids, skip_special_tokens);
}

int64_t Tokenizer::vocab_size() const { return parts_->spellings.end_id(); }

std::optional<TokenId> Tokenizer::id_of(std::string_view token) const {
  const auto added = parts_->definition.added_tokens.find(std::string(token));
  if (added != parts_->definition.added_tokens.end()) return added->second.id;
  return parts_->definition.vocabulary.find(token);
}

std::string_view Tokenizer::token_bytes(TokenId id) const { return parts_->decoder->bytes(id); }
bool Tokenizer::is_special(TokenId id) const { return parts_->is_special(id); }

const std::map<std::string, std::string>& Tokenizer::special_tokens() const {
  return parts_->definition.special_tokens;
}

}  // namespace slime::text
