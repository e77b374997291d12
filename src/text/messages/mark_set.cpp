#include "text/messages/mark_set.h"

#include <algorithm>
#include <optional>

#include "text/tokenizer/tokenizer.h"

namespace slime::text {

MarkSet::MarkSet(std::vector<Mark> marks, const std::vector<std::string_view>& inner_tokens,
                 const Tokenizer* tokenizer, const std::vector<Mark>& also_as_text)
    : marks_(std::move(marks)) {
  Symbol next_symbol = 256;
  const auto add_special = [&](std::string_view spelling) {
    const std::optional<TokenId> id = tokenizer->id_of(spelling);
    if (!id || !tokenizer->is_special(*id) || specials_.contains(*id)) return;
    specials_.emplace(*id, Special{next_symbol++, std::string(spelling)});
  };
  if (tokenizer != nullptr) {
    for (const Mark& mark : marks_) add_special(mark.spelling);
    for (const std::string_view token : inner_tokens) add_special(token);
  }
  for (std::size_t i = 0; i < marks_.size(); ++i) add(symbols_of(marks_[i].spelling), i);
  for (const Mark& mark : also_as_text) {
    std::vector<Symbol> bytes;
    for (const char byte : mark.spelling) bytes.push_back(static_cast<unsigned char>(byte));
    marks_.push_back(mark);
    add(bytes, marks_.size() - 1);
  }
  for (const auto& [symbol, child] : nodes_[kRoot].edges) {
    if (symbol < 256) first_bytes_[symbol] = true;
  }
}

void MarkSet::add(const std::vector<Symbol>& symbols, std::size_t mark) {
  Node node = kRoot;
  for (const Symbol symbol : symbols) {
    Node child = next(node, symbol);
    if (child == kNoNode) {
      child = static_cast<Node>(nodes_.size());
      nodes_.emplace_back();
      nodes_[node].edges.emplace_back(symbol, child);
    }
    node = child;
  }
  if (nodes_[node].mark < 0) nodes_[node].mark = static_cast<int16_t>(mark);
}

MarkSet::Node MarkSet::next(Node node, Symbol symbol) const {
  for (const auto& [edge, child] : nodes_[node].edges) {
    if (edge == symbol) return child;
  }
  return kNoNode;
}

const Mark* MarkSet::mark(Node node) const {
  return nodes_[node].mark < 0 ? nullptr : &marks_[static_cast<std::size_t>(nodes_[node].mark)];
}

const MarkSet::Special* MarkSet::special(TokenId id) const {
  const auto found = specials_.find(id);
  return found == specials_.end() ? nullptr : &found->second;
}

/// The longest special token at each place, and bytes between them.
std::vector<MarkSet::Symbol> MarkSet::symbols_of(std::string_view spelling) const {
  std::vector<Symbol> symbols;
  while (!spelling.empty()) {
    const Special* longest = nullptr;
    for (const auto& [id, special] : specials_) {
      if (spelling.starts_with(special.spelling) &&
          (longest == nullptr || special.spelling.size() > longest->spelling.size()))
        longest = &special;
    }
    symbols.push_back(longest != nullptr ? longest->symbol
                                         : static_cast<unsigned char>(spelling.front()));
    spelling.remove_prefix(longest != nullptr ? longest->spelling.size() : 1);
  }
  return symbols;
}

}  // namespace slime::text
