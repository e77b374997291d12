#include "text/tokenizer/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace slime::text {
namespace {

constexpr std::size_t kMaxVocabularyTokenBytes = 4096;
constexpr std::size_t kMaxAddedTokenBytes = 1024;
constexpr std::size_t kMaxAddedTokens = 1 << 16;
constexpr std::size_t kMaxTemplateTokens = 64;

void read_vocabulary(const JsonField& field, Vocabulary& vocabulary) {
  const json::object& object = field.object();
  vocabulary = Vocabulary(object.size());
  for (const auto& [token, id] : object) {
    const auto* number = id.if_int64();
    if (token.size() > kMaxVocabularyTokenBytes) {
      return field.reject(fmt::format("holds a token of {} bytes, more than the limit of {}",
                                      token.size(), kMaxVocabularyTokenBytes));
    }
    if (number == nullptr || *number < 0 || *number > kMaxTokenId) {
      return field.reject(
          fmt::format("[\"{}\"] must be an id from 0 to {}", std::string_view(token), kMaxTokenId));
    }
    if (!vocabulary.add(static_cast<TokenId>(*number), token)) {
      return field.reject(fmt::format("[\"{}\"] is {}, an id that \"{}\" has already",
                                      std::string_view(token), *number,
                                      vocabulary[static_cast<TokenId>(*number)]));
    }
  }
}

/// "a b" or ["a", "b"]; false when it is neither.
bool read_pair(const json::value& row, std::string_view& left, std::string_view& right) {
  if (const json::string* text = row.if_string()) {
    const std::string_view both = *text;
    const std::size_t space = both.find(' ');
    if (space == both.npos || both.find(' ', space + 1) != both.npos) return false;
    left = both.substr(0, space);
    right = both.substr(space + 1);
    return true;
  }
  const json::array* pair = row.if_array();
  if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() || !(*pair)[1].is_string())
    return false;
  left = (*pair)[0].get_string();
  right = (*pair)[1].get_string();
  return true;
}

void read_merges(const JsonField& field, TokenizerDefinition& definition) {
  const json::array& rows = field.array();
  const Vocabulary& vocabulary = definition.vocabulary;
  const std::size_t prefix_bytes = definition.bpe.continuing_subword_prefix.size();
  definition.merges.reserve(rows.size());
  std::string joined;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (const json::string* line = rows[i].if_string();
        line != nullptr && line->starts_with("#version"))
      continue;
    std::string_view left, right;
    if (!read_pair(rows[i], left, right) || right.size() < prefix_bytes) {
      return field.reject(fmt::format("[{}] must be \"left right\" or [left, right]", i));
    }
    joined.assign(left).append(right.substr(prefix_bytes));
    const auto left_id = vocabulary.find(left), right_id = vocabulary.find(right),
               result = vocabulary.find(joined);
    if (!left_id || !right_id || !result) {
      const std::string_view missing = !left_id    ? left
                                       : !right_id ? right
                                                   : std::string_view(joined);
      return field.reject(
          fmt::format("[{}] needs the token \"{}\", which the vocabulary lacks", i, missing));
    }
    definition.merges.push_back(
        {*left_id, *right_id, static_cast<uint32_t>(definition.merges.size()), *result});
  }
}

void read_model(const JsonField& model, TokenizerDefinition& definition) {
  // Very old files have no type; then a vocabulary with merges is BPE.
  if (const JsonField type = model["type"]; !type.is_null() && type.string() != "BPE") {
    return type.reject(fmt::format("is \"{}\"; known is BPE", type.string()));
  }
  if (const JsonField dropout = model["dropout"]; !dropout.is_null() && !dropout.is_zero()) {
    dropout.reject("must be null or 0: encoding would be random");
  }
  BpeOptions& bpe = definition.bpe;
  bpe.ignore_merges = model["ignore_merges"].boolean(false);
  bpe.byte_fallback = model["byte_fallback"].boolean(false);
  bpe.fuse_unk = model["fuse_unk"].boolean(false);
  if (const JsonField prefix = model["continuing_subword_prefix"]; !prefix.is_null()) {
    bpe.continuing_subword_prefix = prefix.string();
  }
  if (const JsonField suffix = model["end_of_word_suffix"]; !suffix.is_null()) {
    bpe.end_of_word_suffix = suffix.string();
  }
  read_vocabulary(model["vocab"], definition.vocabulary);
  read_merges(model["merges"], definition);
  if (const JsonField unk = model["unk_token"]; !unk.is_null()) {
    const auto id = definition.vocabulary.find(unk.string());
    if (!id) unk.reject(fmt::format("is \"{}\", which the vocabulary lacks", unk.string()));
    bpe.unk_id = id.value_or(-1);
  }
}

void read_added_tokens(const JsonField& field, TokenizerDefinition& definition) {
  if (field.is_null()) return;
  if (field.array().size() > kMaxAddedTokens)
    return field.reject(fmt::format("has more than {} entries", kMaxAddedTokens));
  for (const JsonField& entry : field.elements()) {
    AddedToken token = read_added_token(entry);
    token.id = static_cast<TokenId>(entry["id"].integer(0, kMaxTokenId));
    // As the library does: what the model's vocabulary knows keeps its id there.
    if (const auto known = definition.vocabulary.find(token.content)) token.id = *known;
    if (!token.content.empty()) definition.added_tokens.insert_or_assign(token.content, token);
  }
}

void read_template(const JsonField& processor, TokenizerDefinition& definition) {
  std::vector<TokenId> prefix, suffix;
  bool seen_text = false;
  for (const JsonField& piece : processor["single"].elements()) {
    if (!piece["Sequence"].is_null()) {
      if (seen_text || piece["Sequence"]["id"].string() != "A")
        piece.reject("must be the only sequence, and \"A\"");
      seen_text = true;
      continue;
    }
    const std::string_view name = piece["SpecialToken"]["id"].string();
    for (const JsonField& id : processor["special_tokens"][name]["ids"].elements()) {
      std::vector<TokenId>& side = seen_text ? suffix : prefix;
      side.push_back(static_cast<TokenId>(id.integer(0, kMaxTokenId)));
      if (side.size() > kMaxTemplateTokens) return piece.reject("adds too many tokens");
    }
  }
  if (!seen_text)
    processor["single"].reject("does not contain the text, {\"Sequence\": {\"id\": \"A\"}}");
  definition.prefix.insert(definition.prefix.begin(), prefix.begin(), prefix.end());
  definition.suffix.insert(definition.suffix.end(), suffix.begin(), suffix.end());
  if (definition.prefix.size() + definition.suffix.size() > kMaxTemplateTokens)
    processor.reject("adds too many tokens");
}

void read_post_processor(const JsonField& field, TokenizerDefinition& definition, int depth = 0) {
  constexpr int kMaxDepth = 8;
  if (field.is_null()) return;
  const std::string_view type = field["type"].string();
  if (type == "Sequence" && depth < kMaxDepth) {
    for (const JsonField& element : field["processors"].elements())
      read_post_processor(element, definition, depth + 1);
  } else if (type == "TemplateProcessing") {
    read_template(field, definition);
  } else if (type != "ByteLevel") {
    field["type"].reject(
        fmt::format("is \"{}\"; known are TemplateProcessing, ByteLevel, Sequence", type));
  }
}

/// Where the bytes of words get their stand-ins: in the model when ByteLevel comes last and nothing
/// else needs text.
void place_byte_spelling(const JsonField& field, TokenizerDefinition& definition) {
  BpeOptions& bpe = definition.bpe;
  const bool model_can =
      !bpe.byte_fallback && bpe.continuing_subword_prefix.empty() && bpe.end_of_word_suffix.empty();
  int count = 0;
  for (PreTokenizerStep& step : definition.pre_tokenizer) {
    auto* byte_level = std::get_if<ByteLevel>(&step);
    if (byte_level == nullptr) continue;
    if (++count == 2)
      field.reject("has two ByteLevel steps, which would spell stand-ins with stand-ins");
    const bool is_last = &step == &definition.pre_tokenizer.back();
    bpe.works_on_bytes = is_last && model_can;
    byte_level->spell_bytes = !bpe.works_on_bytes;
  }
}

}  // namespace

AddedToken read_added_token(const JsonField& field) {
  AddedToken token;
  const JsonField content = field["content"];
  token.content = content.string();
  if (token.content.size() > kMaxAddedTokenBytes) {
    content.reject(fmt::format("is longer than {} bytes", kMaxAddedTokenBytes));
    token.content.clear();
  }
  token.special = field["special"].boolean(false);
  token.normalized = field["normalized"].boolean(!token.special);
  token.single_word = field["single_word"].boolean(false);
  token.lstrip = field["lstrip"].boolean(false);
  token.rstrip = field["rstrip"].boolean(false);
  return token;
}

TokenizerDefinition read_tokenizer_json(const json::value& root, std::string_view where) {
  std::vector<std::string> problems;
  const JsonField file(root, std::string(where) + ": ", problems);
  TokenizerDefinition definition;
  if (const JsonField version = file["version"]; !version.is_null() && version.string() != "1.0") {
    version.reject(fmt::format("is \"{}\"; known is 1.0", version.string()));
  }
  definition.normalizer = read_normalizer(file["normalizer"]);
  definition.pre_tokenizer = read_pre_tokenizer(file["pre_tokenizer"]);
  definition.decoder = read_decoder(file["decoder"]);
  read_model(file["model"], definition);
  read_added_tokens(file["added_tokens"], definition);
  read_post_processor(file["post_processor"], definition);
  place_byte_spelling(file["pre_tokenizer"], definition);
  if (!problems.empty()) throw ConfigError(problems);
  return definition;
}

}  // namespace slime::text
