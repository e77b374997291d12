#include "text/tokenizer/tokenizer_config.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>

#include "core/error.h"
#include "text/json_field.h"
#include "text/tokenizer/tokenizer_json.h"

namespace slime::text {
namespace {

constexpr std::array kNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                               "pad_token", "cls_token", "mask_token"};
constexpr std::size_t kMaxExtraTokens = 4096;

/// "</s>" or {"content": "</s>", ...}; nothing when null.
std::optional<AddedToken> read_token(const JsonField& field) {
  if (field.is_null()) return std::nullopt;
  AddedToken token;
  if (field.is_object()) {
    token = read_added_token(field);
  } else {
    token.content = field.string();
  }
  token.special = true;
  return token.content.empty() ? std::nullopt : std::optional(token);
}

/// An id for a new token: the vocabulary's, or else behind everything.
TokenId id_for(const TokenizerDefinition& definition, const std::string& content) {
  if (const auto known = definition.vocabulary.find(content)) return *known;
  TokenId end = definition.vocabulary.end_id();
  for (const auto& [other, token] : definition.added_tokens) end = std::max(end, token.id + 1);
  return end;
}

void add_unless_known(TokenizerDefinition& definition, AddedToken token) {
  if (definition.added_tokens.contains(token.content)) return;
  token.id = id_for(definition, token.content);
  definition.added_tokens.emplace(token.content, token);
}

/// {"151643": {"content": "<|endoftext|>", ...}, ...}: its flags win over those of tokenizer.json.
void read_added_tokens_decoder(const JsonField& field, TokenizerDefinition& definition) {
  if (field.is_null()) return;
  for (const auto& [key, unused] : field.object()) {
    AddedToken token = read_added_token(field[key]);
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (error != std::errc() || end != key.data() + key.size() || token.id < 0 ||
        token.id > kMaxTokenId) {
      field.reject(
          fmt::format("[\"{}\"] must be an id from 0 to {}", std::string_view(key), kMaxTokenId));
      continue;
    }
    if (token.content.empty()) continue;
    if (const auto known = definition.added_tokens.find(token.content);
        known != definition.added_tokens.end()) {
      token.id = known->second.id;
    } else if (const auto id = definition.vocabulary.find(token.content)) {
      token.id = *id;
    }
    definition.added_tokens.insert_or_assign(token.content, token);
  }
}

/// A list of tokens, or an object of name -> token.
void read_extra_tokens(const JsonField& field, TokenizerDefinition& definition) {
  if (field.is_null()) return;
  const bool is_named = field.is_object();
  const std::size_t size = is_named ? field.object().size() : field.array().size();
  if (size > kMaxExtraTokens)
    return field.reject(fmt::format("has more than {} tokens", kMaxExtraTokens));
  if (is_named) {
    for (const auto& [name, unused] : field.object()) {
      if (const auto token = read_token(field[name])) {
        definition.special_tokens.emplace(name, token->content);
        add_unless_known(definition, *token);
      }
    }
    return;
  }
  for (const JsonField& element : field.elements()) {
    if (const auto token = read_token(element)) add_unless_known(definition, *token);
  }
}

}  // namespace

void apply_tokenizer_config(const json::value& config, const json::value& special_tokens_map,
                            std::string_view where, TokenizerDefinition& definition) {
  std::vector<std::string> problems;
  const JsonField config_file(config, fmt::format("{}/tokenizer_config.json: ", where), problems);
  const JsonField map_file(special_tokens_map, fmt::format("{}/special_tokens_map.json: ", where),
                           problems);
  read_added_tokens_decoder(config_file["added_tokens_decoder"], definition);
  for (const char* name : kNames) {
    auto token = read_token(config_file[name]);
    if (!token) token = read_token(map_file[name]);
    if (!token) continue;
    definition.special_tokens[name] = token->content;
    add_unless_known(definition, *token);
  }
  for (const JsonField& file : {config_file, map_file}) {
    read_extra_tokens(file["additional_special_tokens"], definition);
    read_extra_tokens(file["extra_special_tokens"], definition);
  }
  if (!problems.empty()) throw ConfigError(problems);
}

}  // namespace slime::text
