#include "text/tokenizer/tokenizer_config.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>

#include "core/error.h"
#include "core/field_reader.h"
#include "text/tokenizer/tokenizer_json.h"

namespace slime::text {
namespace {

constexpr std::array kNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                               "pad_token", "cls_token", "mask_token"};
constexpr std::size_t kMaxExtraTokens = 4096;

/// "</s>" or {"content": "</s>", ...}; nothing when absent.
std::optional<AddedToken> read_token(const FieldReader& fields, std::string_view name) {
  const json::value* value = fields.find(name);
  if (value == nullptr) return std::nullopt;
  AddedToken token;
  if (value->is_object()) {
    token = read_added_token(*fields.fields(name));
  } else {
    token.content = fields.text(name).value_or("");
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
void read_added_tokens_decoder(const FieldReader& file, TokenizerDefinition& definition) {
  const auto entries = file.fields("added_tokens_decoder");
  if (!entries) return;
  for (const auto& [key, unused] : entries->raw()) {
    const auto entry = entries->required().fields(key);
    if (!entry) continue;
    AddedToken token = read_added_token(*entry);
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (error != std::errc() || end != key.data() + key.size() || token.id < 0 ||
        token.id > kMaxTokenId) {
      entries->note(key, fmt::format("must be an id from 0 to {}", kMaxTokenId));
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
void read_extra_tokens(const FieldReader& file, std::string_view name,
                       TokenizerDefinition& definition) {
  const json::value* value = file.find(name);
  if (value == nullptr) return;
  const bool is_named = value->is_object();
  // A list is read as the object of its indices.
  json::object by_index;
  if (!is_named) {
    const json::array* list = file.array(name);
    if (list == nullptr) return;
    for (std::size_t i = 0; i < list->size() && i <= kMaxExtraTokens; ++i)
      by_index.emplace(std::to_string(i), (*list)[i]);
  }
  const json::object& tokens = is_named ? value->get_object() : by_index;
  if (tokens.size() > kMaxExtraTokens)
    return file.note(name, fmt::format("has more than {} tokens", kMaxExtraTokens));
  const FieldReader fields = file.inside(tokens, name);
  for (const auto& [key, unused] : tokens) {
    const auto token = read_token(fields, key);
    if (!token) continue;
    if (is_named) definition.special_tokens.emplace(key, token->content);
    add_unless_known(definition, *token);
  }
}

}  // namespace

void apply_tokenizer_config(const json::value& config, const json::value& special_tokens_map,
                            std::string_view where, TokenizerDefinition& definition) {
  std::vector<std::string> problems;
  const json::object nothing;
  const auto fields_of = [&](const json::value& file, std::string_view name) {
    if (!file.is_object() && !file.is_null())
      problems.push_back(fmt::format("{}/{}: must hold a JSON object", where, name));
    return FieldReader(file.is_object() ? file.get_object() : nothing,
                       fmt::format("{}/{}: ", where, name), problems);
  };
  const FieldReader config_file = fields_of(config, "tokenizer_config.json");
  const FieldReader map_file = fields_of(special_tokens_map, "special_tokens_map.json");
  read_added_tokens_decoder(config_file, definition);
  for (const char* name : kNames) {
    auto token = read_token(config_file, name);
    if (!token) token = read_token(map_file, name);
    if (!token) continue;
    definition.special_tokens[name] = token->content;
    add_unless_known(definition, *token);
  }
  for (const FieldReader& file : {config_file, map_file}) {
    read_extra_tokens(file, "additional_special_tokens", definition);
    read_extra_tokens(file, "extra_special_tokens", definition);
  }
  if (!problems.empty()) throw ConfigError(problems);
}

}  // namespace slime::text
