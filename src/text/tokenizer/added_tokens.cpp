#include "text/tokenizer/added_tokens.h"

#include <algorithm>

#include "text/unicode/unicode.h"

namespace slime::text {
namespace {

bool is_word_at(std::string_view text, std::size_t at) {
  return CodePointTable::instance()[decode_char(text.data() + at).code_point].is_word();
}

/// Where the character before `end` begins.
std::size_t char_before(std::string_view text, std::size_t end) {
  do --end;
  while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  return end;
}

bool is_space_at(std::string_view text, std::size_t at) {
  return CodePointTable::instance()[decode_char(text.data() + at).code_point].is_space();
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<Entry> entries) : entries_(std::move(entries)) {
  if (entries_.empty()) return;
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.text < b.text; });
  for (const Entry& entry : entries_)
    begins_token_[static_cast<unsigned char>(entry.text.front())] = true;
  add_node(0, entries_.size(), 0);
}

/// The node of entries [begin, end), which share their first `depth` bytes.
uint32_t AddedTokenMatcher::add_node(std::size_t begin, std::size_t end, std::size_t depth) {
  const auto index = static_cast<uint32_t>(nodes_.size());
  nodes_.emplace_back();
  if (entries_[begin].text.size() == depth) nodes_[index].entry = static_cast<int32_t>(begin++);
  std::vector<Edge> edges;
  while (begin < end) {
    const char byte = entries_[begin].text[depth];
    std::size_t next = begin;
    while (next < end && entries_[next].text[depth] == byte) ++next;
    edges.push_back({static_cast<unsigned char>(byte), add_node(begin, next, depth + 1)});
    begin = next;
  }
  nodes_[index].first_edge = static_cast<uint32_t>(edges_.size());
  nodes_[index].num_edges = static_cast<uint32_t>(edges.size());
  edges_.insert(edges_.end(), edges.begin(), edges.end());
  return index;
}

int32_t AddedTokenMatcher::longest_at(std::string_view text, std::size_t at) const {
  int32_t longest = -1;
  for (uint32_t node = 0; at < text.size(); ++at) {
    const auto first = edges_.begin() + nodes_[node].first_edge;
    const auto last = first + nodes_[node].num_edges;
    const auto byte = static_cast<unsigned char>(text[at]);
    const auto edge =
        std::find_if(first, last, [byte](const Edge& candidate) { return candidate.byte == byte; });
    if (edge == last) break;
    node = edge->node;
    if (nodes_[node].entry >= 0) longest = nodes_[node].entry;
  }
  return longest;
}

void AddedTokenMatcher::cut(std::string_view text, bool split_special,
                            std::vector<Segment>& segments, std::span<const uint32_t> seams) const {
  const auto add = [&](std::size_t begin, std::size_t end, TokenId id) {
    segments.push_back({{static_cast<uint32_t>(begin), static_cast<uint32_t>(end)}, id});
  };
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size() && !entries_.empty();) {
    const int32_t found =
        begins_token_[static_cast<unsigned char>(text[at])] ? longest_at(text, at) : -1;
    if (found < 0) {
      ++at;
      continue;
    }
    const Entry& entry = entries_[static_cast<std::size_t>(found)];
    const AddedToken& token = entry.token;
    std::size_t begin = at, end = at + entry.text.size();
    at = end;
    if (split_special && token.special) continue;
    const auto seam = std::upper_bound(seams.begin(), seams.end(), begin);
    if (seam != seams.end() && *seam < end) continue;
    if (token.single_word) {
      if (begin > 0 && is_word_at(text, char_before(text, begin))) continue;
      if (end < text.size() && is_word_at(text, end)) continue;
    }
    if (token.lstrip) {
      while (begin > done && is_space_at(text, char_before(text, begin)))
        begin = char_before(text, begin);
    }
    if (token.rstrip) {
      while (end < text.size() && is_space_at(text, end))
        end += decode_char(text.data() + end).length;
    }
    if (done < begin) add(done, begin, -1);
    add(begin, end, token.id);
    done = end;
  }
  if (done < text.size()) add(done, text.size(), -1);
}

}  // namespace slime::text
