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

void read_vocabulary(const FieldReader& model, Vocabulary& vocabulary) {
  constexpr std::string_view kName = "vocab";
  const json::object* tokens = model.required().object(kName);
  if (tokens == nullptr) return;
  vocabulary = Vocabulary(tokens->size());
  for (const auto& [token, id] : *tokens) {
    const auto* number = id.if_int64();
    if (token.size() > kMaxVocabularyTokenBytes) {
      return model.note(kName, fmt::format("holds a token of {} bytes, more than the limit of {}",
                                           token.size(), kMaxVocabularyTokenBytes));
    }
    if (number == nullptr || *number < 0 || *number > kMaxTokenId) {
      return model.note(kName, fmt::format("[\"{}\"] must be an id from 0 to {}",
                                           std::string_view(token), kMaxTokenId));
    }
    if (!vocabulary.add(static_cast<TokenId>(*number), token)) {
      return model.note(kName, fmt::format("[\"{}\"] is {}, an id that \"{}\" has already",
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

void read_merges(const FieldReader& model, TokenizerDefinition& definition) {
  constexpr std::string_view kName = "merges";
  const json::array* list = model.required().array(kName);
  if (list == nullptr) return;
  const json::array& rows = *list;
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
      return model.note(kName, fmt::format("[{}] must be \"left right\" or [left, right]", i));
    }
    joined.assign(left).append(right.substr(prefix_bytes));
    const auto left_id = vocabulary.find(left), right_id = vocabulary.find(right),
               result = vocabulary.find(joined);
    if (!left_id || !right_id || !result) {
      const std::string_view missing = !left_id    ? left
                                       : !right_id ? right
                                                   : std::string_view(joined);
      return model.note(
          kName,
          fmt::format("[{}] needs the token \"{}\", which the vocabulary lacks", i, missing));
    }
    definition.merges.push_back(
        {*left_id, *right_id, static_cast<uint32_t>(definition.merges.size()), *result});
  }
}

void read_model(const FieldReader& model, TokenizerDefinition& definition) {
  // Very old files have no type; then a vocabulary with merges is BPE.
  if (const auto type = model.text("type"); type && *type != "BPE")
    return model.note("type", fmt::format("is \"{}\"; known is BPE", *type));
  if (model.find("dropout") != nullptr && model.number("dropout").value_or(0) != 0)
    model.wrong("dropout", "must be null or 0: encoding would be random");
  BpeOptions& bpe = definition.bpe;
  bpe.ignore_merges = model.boolean("ignore_merges").value_or(false);
  bpe.byte_fallback = model.boolean("byte_fallback").value_or(false);
  bpe.fuse_unk = model.boolean("fuse_unk").value_or(false);
  bpe.continuing_subword_prefix = model.text("continuing_subword_prefix").value_or("");
  bpe.end_of_word_suffix = model.text("end_of_word_suffix").value_or("");
  read_vocabulary(model, definition.vocabulary);
  read_merges(model, definition);
  if (const auto unk = model.text("unk_token")) {
    const auto id = definition.vocabulary.find(*unk);
    if (!id) model.note("unk_token", fmt::format("is \"{}\", which the vocabulary lacks", *unk));
    bpe.unk_id = id.value_or(-1);
  }
}

void read_added_tokens(const FieldReader& file, TokenizerDefinition& definition) {
  const json::array* list = file.array("added_tokens");
  if (list == nullptr) return;
  if (list->size() > kMaxAddedTokens)
    return file.note("added_tokens", fmt::format("has more than {} entries", kMaxAddedTokens));
  for (const FieldReader& entry : file.list("added_tokens")) {
    AddedToken token = read_added_token(entry);
    token.id = static_cast<TokenId>(entry.required().integer("id", 0, kMaxTokenId).value_or(0));
    // As the library does: what the model's vocabulary knows keeps its id there.
    if (const auto known = definition.vocabulary.find(token.content)) token.id = *known;
    if (!token.content.empty()) definition.added_tokens.insert_or_assign(token.content, token);
  }
}

/// The ids of a special token of the template.
std::vector<TokenId> read_special_ids(const FieldReader& processor, std::string_view name) {
  const auto tokens = processor.required().fields("special_tokens");
  const auto token = tokens ? tokens->required().fields(name) : std::nullopt;
  if (!token) return {};
  return token->required().token_ids("ids", kMaxTokenId + int64_t{1});
}

void read_template(const FieldReader& processor, TokenizerDefinition& definition) {
  std::vector<TokenId> prefix, suffix;
  bool seen_text = false;
  for (const FieldReader& piece : processor.required().list("single")) {
    if (const auto sequence = piece.fields("Sequence")) {
      if (seen_text || sequence->required().text("id") != "A")
        piece.note_object("must be the only sequence, and \"A\"");
      seen_text = true;
      continue;
    }
    const auto special = piece.required().fields("SpecialToken");
    const auto name = special ? special->required().text("id") : std::nullopt;
    if (!name) continue;
    std::vector<TokenId>& side = seen_text ? suffix : prefix;
    const std::vector<TokenId> ids = read_special_ids(processor, *name);
    side.insert(side.end(), ids.begin(), ids.end());
    if (side.size() > kMaxTemplateTokens) return piece.note_object("adds too many tokens");
  }
  if (!seen_text)
    processor.note("single", "does not contain the text, {\"Sequence\": {\"id\": \"A\"}}");
  definition.prefix.insert(definition.prefix.begin(), prefix.begin(), prefix.end());
  definition.suffix.insert(definition.suffix.end(), suffix.begin(), suffix.end());
  if (definition.prefix.size() + definition.suffix.size() > kMaxTemplateTokens)
    processor.note_object("adds too many tokens");
}

void read_post_processor(const FieldReader& processor, TokenizerDefinition& definition,
                         int depth = 0) {
  constexpr int kMaxDepth = 8;
  const auto type = processor.required().text("type");
  if (!type) return;
  if (*type == "Sequence" && depth < kMaxDepth) {
    for (const FieldReader& element : processor.required().list("processors"))
      read_post_processor(element, definition, depth + 1);
  } else if (*type == "TemplateProcessing") {
    read_template(processor, definition);
  } else if (*type != "ByteLevel") {
    processor.note(
        "type", fmt::format("is \"{}\"; known are TemplateProcessing, ByteLevel, Sequence", *type));
  }
}

/// Where the bytes of words get their stand-ins: in the model when ByteLevel comes last and nothing
/// else needs text.
void place_byte_spelling(const FieldReader& file, TokenizerDefinition& definition) {
  BpeOptions& bpe = definition.bpe;
  const bool model_can =
      !bpe.byte_fallback && bpe.continuing_subword_prefix.empty() && bpe.end_of_word_suffix.empty();
  int count = 0;
  for (PreTokenizerStep& step : definition.pre_tokenizer) {
    auto* byte_level = std::get_if<ByteLevel>(&step);
    if (byte_level == nullptr) continue;
    if (++count == 2)
      file.note("pre_tokenizer",
                "has two ByteLevel steps, which would spell stand-ins with stand-ins");
    const bool is_last = &step == &definition.pre_tokenizer.back();
    bpe.works_on_bytes = is_last && model_can;
    byte_level->spell_bytes = !bpe.works_on_bytes;
  }
}

}  // namespace

AddedToken read_added_token(const FieldReader& entry) {
  AddedToken token;
  token.content = entry.required().text("content", kMaxAddedTokenBytes).value_or("");
  token.special = entry.boolean("special").value_or(false);
  token.normalized = entry.boolean("normalized").value_or(!token.special);
  token.single_word = entry.boolean("single_word").value_or(false);
  token.lstrip = entry.boolean("lstrip").value_or(false);
  token.rstrip = entry.boolean("rstrip").value_or(false);
  return token;
}

TokenizerDefinition read_tokenizer_json(const json::value& root, std::string_view where) {
  if (!root.is_object()) throw ConfigError(fmt::format("{}: must hold a JSON object", where));
  std::vector<std::string> problems;
  const FieldReader file(root.get_object(), fmt::format("{}: ", where), problems);
  TokenizerDefinition definition;
  if (const auto version = file.text("version"); version && *version != "1.0")
    file.note("version", fmt::format("is \"{}\"; known is 1.0", *version));
  definition.normalizer = read_normalizer(file);
  definition.pre_tokenizer = read_pre_tokenizer(file);
  definition.decoder = read_decoder(file);
  if (const auto model = file.required().fields("model")) read_model(*model, definition);
  read_added_tokens(file, definition);
  if (const auto processor = file.fields("post_processor"))
    read_post_processor(*processor, definition);
  place_byte_spelling(file, definition);
  if (!problems.empty()) throw ConfigError(problems);
  return definition;
}

}  // namespace slime::text
