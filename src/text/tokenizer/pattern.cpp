#include "text/tokenizer/pattern.h"

#include "core/error.h"

namespace slime::text {

Pattern Pattern::literal(std::string text) {
  check(!text.empty(), "a literal pattern is not empty");
  return Pattern(std::move(text));
}

Expected<Pattern> Pattern::regex(std::string_view pattern) {
  if (const WordSplitter* splitter = WordSplitter::find(pattern)) return Pattern(splitter);
  Expected<Regex> compiled = Regex::compile(pattern);
  if (!compiled) return tl::make_unexpected(compiled.error());
  return Pattern(std::move(*compiled));
}

void Pattern::find_all(std::string_view text, std::vector<Range>& matches) const {
  if (const auto* literal = std::get_if<std::string>(&kind_)) {
    for (std::size_t at = text.find(*literal); at != text.npos;
         at = text.find(*literal, at + literal->size())) {
      matches.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(at + literal->size())});
    }
  } else if (const auto* regex = std::get_if<Regex>(&kind_)) {
    regex->find_all(text, matches);
  } else {
    std::get<const WordSplitter*>(kind_)->find_all(text, matches);
  }
}

std::string replace_all(std::string_view text, const Pattern& pattern, std::string_view content,
                        std::size_t limit_bytes) {
  std::vector<Range> matches;
  pattern.find_all(text, matches);
  std::size_t matched_bytes = 0;
  for (const Range& match : matches) matched_bytes += match.end - match.begin;
  const std::size_t result_bytes = text.size() - matched_bytes + matches.size() * content.size();
  if (result_bytes > limit_bytes) {
    throw ConfigError("a Replace step of the tokenizer makes a text of " +
                      std::to_string(text.size()) + " bytes longer than the limit of " +
                      std::to_string(limit_bytes));
  }
  std::string out;
  out.reserve(result_bytes);
  std::size_t done = 0;
  for (const Range& match : matches) {
    out.append(text.substr(done, match.begin - done)).append(content);
    done = match.end;
  }
  return out.append(text.substr(done));
}

}  // namespace slime::text
