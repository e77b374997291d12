#pragma once

/// Marks that an output is searched for, compiled for one vocabulary.
///
/// A mark is a row of symbols: bytes, and the tokens in it that the vocabulary flags special. Such
/// a token is a symbol of its own, so text that merely spells it is no part of a mark. Without a
/// tokenizer everything is bytes.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/sample.h"
#include "text/messages/marks.h"

namespace slime::text {

class Tokenizer;

/// Immutable; may be used by any number of threads.
class MarkSet final {
 public:
  /// `inner_tokens`: tokens inside of marks that may be special, next to the marks themselves.
  /// `tokenizer` may be null. `also_as_text`: those of the marks that count as well where they are merely
  /// spelled.
  MarkSet(std::vector<Mark> marks, const std::vector<std::string_view>& inner_tokens,
          const Tokenizer* tokenizer, const std::vector<Mark>& also_as_text = {});

  using Symbol = uint16_t;  // a byte, or 256 and more: a special token
  using Node = uint16_t;    // a place in the tree of all marks
  static constexpr Node kRoot = 0;
  static constexpr Node kNoNode = 0xffff;

  Node next(Node node, Symbol symbol) const;
  bool is_leaf(Node node) const { return nodes_[node].edges.empty(); }
  /// The mark that ends at a node, or null.
  const Mark* mark(Node node) const;
  bool may_begin(char byte) const { return first_bytes_[static_cast<unsigned char>(byte)]; }

  /// A special token that is a mark or a part of one.
  struct Special {
    Symbol symbol;
    std::string spelling;
  };
  const Special* special(TokenId id) const;

 private:
  struct Branch {
    std::vector<std::pair<Symbol, Node>> edges;
    int16_t mark = -1;
  };
  std::vector<Symbol> symbols_of(std::string_view spelling) const;
  void add(const std::vector<Symbol>& symbols, std::size_t mark);

  std::vector<Mark> marks_;
  std::vector<Branch> nodes_{1};
  std::array<bool, 256> first_bytes_{};
  std::map<TokenId, Special> specials_;
};

}  // namespace slime::text
