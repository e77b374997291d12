#include "text/tokenizer/tiktoken_file.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "core/base64.h"
#include "core/error.h"
#include "core/field_reader.h"
#include "text/tokenizer/byte_alphabet.h"

namespace slime::text {
namespace {

constexpr std::size_t kMaxTokenBytes = 1024;
constexpr TokenId kNumKimiReserved = 256;
constexpr int kNumQwenExtras = 205;

struct Rank {
  std::string bytes;
  TokenId id;
};

std::vector<Rank> read_ranks(std::string_view text, std::string_view where) {
  std::vector<Rank> ranks;
  for (int64_t line_number = 1; !text.empty(); ++line_number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::size_t space = std::min(line.find(' '), line.size());
    const std::string_view number = line.substr(std::min(space + 1, line.size()));
    auto bytes = from_base64(line.substr(0, space));
    TokenId id = -1;
    const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), id);
    if (!bytes || bytes->empty() || bytes->size() > kMaxTokenBytes || error != std::errc() ||
        stop != number.data() + number.size() || id < 0 || id > kMaxTokenId) {
      throw ConfigError(
          fmt::format("{}, line {}: must be a token of at most {} bytes in base64, a space, and a "
                      "rank from 0 to {}",
                      where, line_number, kMaxTokenBytes, kMaxTokenId));
    }
    ranks.push_back({*std::move(bytes), id});
  }
  if (ranks.empty()) throw ConfigError(fmt::format("{}: holds no tokens", where));
  return ranks;
}

/// Each way to cut a token into two tokens, at the token's own rank: what tiktoken's "join the
/// neighbours whose union has the lowest rank" amounts to.
std::vector<Merge> merges_of(const std::vector<Rank>& ranks, const Vocabulary& by_bytes) {
  std::vector<Merge> merges;
  for (const Rank& whole : ranks) {
    const std::string_view bytes = whole.bytes;
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = by_bytes.find(bytes.substr(0, cut));
      if (!left) continue;
      const auto right = by_bytes.find(bytes.substr(cut));
      if (right) merges.push_back({*left, *right, static_cast<uint32_t>(whole.id), whole.id});
    }
  }
  return merges;
}

void add_special(TokenizerDefinition& definition, TokenId id, std::string content) {
  AddedToken token;
  token.id = id;
  token.content = std::move(content);
  token.special = true;
  definition.added_tokens.emplace(token.content, token);
}

/// The pattern that tokenizer_config.json asks for, and what else its class implies.
std::string read_pattern_text(const FieldReader& config, TokenizerDefinition& definition) {
  const TokenId end = definition.vocabulary.end_id();
  const std::string name = config.text("tokenizer_class").value_or("");
  std::string_view pattern;
  if (name == "TikTokenTokenizer") {
    pattern = WordSplitter::kKimi;
    // tokenizer_config.json may name some of these ids; the others are reserved.
    const json::object* named = config.object("added_tokens_decoder");
    for (TokenId id = end; id < end + kNumKimiReserved; ++id) {
      if (named == nullptr || !named->contains(std::to_string(id)))
        add_special(definition, id, fmt::format("<|reserved_token_{}|>", id));
    }
  } else if (name == "QWenTokenizer") {
    pattern = WordSplitter::kQwen2;
    definition.normalizer.emplace_back(NormalForm::kNfc);
    TokenId id = end;
    for (const char* content : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
      add_special(definition, id++, content);
    for (int i = 0; i < kNumQwenExtras; ++i)
      add_special(definition, id++, fmt::format("<|extra_{}|>", i));
  } else if (name.empty() || name == "PreTrainedTokenizerFast" || name == "TokenizersBackend") {
    pattern = WordSplitter::kCl100k;
  }
  for (const char* key : {"pat_str", "pattern"}) {
    if (config.has(key)) return config.text(key).value_or("");
  }
  if (pattern.empty()) {
    config.note(
        "tokenizer_class",
        fmt::format("is \"{}\", whose pattern is not known; set \"pat_str\" beside it to the "
                    "regular expression that cuts words",
                    name));
  }
  return std::string(pattern);
}

}  // namespace

TokenizerDefinition read_tiktoken_file(std::string_view text, const json::value& config,
                                       std::string_view where) {
  std::vector<std::string> problems;
  const std::vector<Rank> ranks = read_ranks(text, where);
  TokenizerDefinition definition;
  definition.vocabulary = Vocabulary(ranks.size());
  Vocabulary by_bytes(ranks.size());
  for (const Rank& rank : ranks) {
    std::string spelling;
    append_spelling(rank.bytes, spelling);
    if (!by_bytes.add(rank.id, rank.bytes) || !definition.vocabulary.add(rank.id, spelling)) {
      throw ConfigError(fmt::format("{}: rank {} or its token occurs twice", where, rank.id));
    }
  }
  definition.merges = merges_of(ranks, by_bytes);
  definition.bpe.works_on_bytes = true;
  definition.bpe.ignore_merges = true;
  const json::object nothing;
  const FieldReader config_file(config.is_object() ? config.get_object() : nothing,
                                fmt::format("{}, tokenizer_config.json: ", where), problems);
  const std::string pattern_text = read_pattern_text(config_file, definition);
  if (!pattern_text.empty()) {
    Expected<Pattern> pattern = Pattern::regex(pattern_text);
    if (pattern) {
      definition.pre_tokenizer.emplace_back(
          Split{std::move(*pattern), SplitBehavior::kIsolated, false});
    } else {
      config_file.note("pat_str", pattern.error().message);
    }
  }
  definition.pre_tokenizer.emplace_back(
      ByteLevel{.add_prefix_space = false, .use_regex = false, .spell_bytes = false});
  definition.decoder.emplace_back(DecodeByteLevel{});
  if (!problems.empty()) throw ConfigError(problems);
  return definition;
}

}  // namespace slime::text
