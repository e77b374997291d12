#include "text/tokenizer/tokenizer_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "text/unicode/unicode.h"

namespace slime::text {
namespace {

/// Those inside a range, counted from its begin.
std::vector<uint32_t> seams_within(std::span<const uint32_t> seams, const Range& range) {
  std::vector<uint32_t> inside;
  const auto first = std::upper_bound(seams.begin(), seams.end(), range.begin);
  for (auto seam = first; seam != seams.end() && *seam < range.end; ++seam)
    inside.push_back(*seam - range.begin);
  return inside;
}

}  // namespace

Tokenizer::Parts::Parts(TokenizerDefinition given, std::string_view where)
    : definition(std::move(given)) {
  std::vector<std::string> problems;
  std::vector<AddedTokenMatcher::Entry> raw_entries, normalized_entries;
  // Decoding spells a normalized token in its normalized form, so that the decoder can undo what
  // the normalizer did.
  StringsById decoded_spellings;
  for (const auto& [content, token] : definition.added_tokens) {
    std::string storage(content);
    if (token.normalized) storage = normalize(definition.normalizer, content, storage);
    if (!spellings.add(token.id, content)) {
      problems.push_back(fmt::format("{}: added tokens \"{}\" and \"{}\" share the id {}", where,
                                     spellings[token.id], content, token.id));
      continue;
    }
    decoded_spellings.add(token.id, storage);
    if (special.size() <= static_cast<std::size_t>(token.id))
      special.resize(static_cast<std::size_t>(token.id) + 1);
    special[static_cast<std::size_t>(token.id)] = token.special;
    added_kinds.emplace(token.id, token.special ? TokenKind::kSpecial : TokenKind::kAdded);
    if (!storage.empty())
      (token.normalized ? normalized_entries : raw_entries).push_back({storage, token});
  }
  for (TokenId id = 0; id < definition.vocabulary.end_id(); ++id) {
    if (!definition.vocabulary.contains(id)) continue;
    spellings.add(id, definition.vocabulary[id]);
    decoded_spellings.add(id, definition.vocabulary[id]);
  }
  for (const std::vector<TokenId>* side : {&definition.prefix, &definition.suffix}) {
    for (const TokenId id : *side) {
      if (!spellings.contains(id))
        problems.push_back(
            fmt::format("{}: the post-processor adds id {}, which is no token", where, id));
    }
  }
  raw = AddedTokenMatcher(std::move(raw_entries));
  normalized = AddedTokenMatcher(std::move(normalized_entries));
  if (!problems.empty()) throw ConfigError(problems);
  bpe = std::make_unique<const Bpe>(definition.vocabulary, std::exchange(definition.merges, {}),
                                    definition.bpe);
  decoder = std::make_unique<const TokenDecoder>(std::exchange(definition.decoder, {}),
                                                 std::move(decoded_spellings), where);
}

void Tokenizer::Parts::encode(std::string_view text, bool split_special, std::vector<TokenId>& ids,
                              std::span<const uint32_t> seams,
                              std::vector<Stretch>* stretches) const {
  const auto part = [](std::string_view whole, const Range& range) {
    return whole.substr(range.begin, range.end - range.begin);
  };
  std::vector<Segment> segments, inner;
  raw->cut(text, split_special, segments, seams);
  std::string storage;
  for (const Segment& segment : segments) {
    if (stretches != nullptr) stretches->push_back({segment.range, ids.size()});
    if (segment.id >= 0) {
      ids.push_back(segment.id);
      continue;
    }
    const std::string_view source = part(text, segment.range);
    const std::string_view clean = slime::text::normalize(definition.normalizer, source, storage);
    // Where the normalizer changed the text, a seam has no exact place any more: then no normalized
    // token is looked for in a segment that has one.
    const std::vector<uint32_t> inner_seams = seams_within(seams, segment.range);
    inner.clear();
    if (inner_seams.empty() || clean == source) {
      normalized->cut(clean, split_special, inner, inner_seams);
    } else {
      inner.push_back({{0, static_cast<uint32_t>(clean.size())}, -1});
    }
    for (const Segment& piece : inner) {
      if (piece.id >= 0) {
        ids.push_back(piece.id);
      } else {
        encode_plain(part(clean, piece.range), segment.range.begin == 0 && piece.range.begin == 0,
                     ids);
      }
    }
  }
}

void Tokenizer::Parts::encode_plain(std::string_view text, bool begins_input,
                                    std::vector<TokenId>& ids) const {
  Words words(text, begins_input);
  for (const PreTokenizerStep& step : definition.pre_tokenizer) words.apply(step);
  for (const Range& range : words.ranges()) bpe->encode(words[range], ids);
}

std::string Tokenizer::Parts::decode(std::span<const TokenId> ids, bool skip_special) const {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::string bytes, run;  // `run`: the byte tokens since the last other token
  const auto finish_run = [&] {
    if (is_valid_utf8(run)) {
      bytes += run;
    } else {
      for (std::size_t i = 0; i < run.size(); ++i) bytes += kReplacement;
    }
    run.clear();
  };
  bool is_first = true;
  for (const TokenId id : ids) {
    if (!spellings.contains(id) || (skip_special && is_special(id))) continue;
    if (decoder->is_byte(id)) {
      run += decoder->bytes(id);
    } else {
      finish_run();
      if (is_first) {
        bytes += decoder->first_bytes(id);
      } else {
        bytes += decoder->bytes(id);
      }
    }
    is_first = false;
  }
  finish_run();
  return stripped(to_valid_utf8(bytes), decoder->strip());
}

}  // namespace slime::text
