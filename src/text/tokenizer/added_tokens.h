#pragma once

/// Added tokens: strings such as <|im_start|> that are cut out of a text before anything else
/// happens to it.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/sample.h"
#include "text/tokenizer/regex.h"

namespace slime::text {

struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool single_word = false;  // only where no word character (\w) stands beside it
  bool lstrip = false;       // takes white space on its left with it
  bool rstrip = false;       // and on its right
  bool normalized = false;   // looked for after normalization, in its own normalized form
  /// Skipped by decode(skip_special_tokens), plain text under split_special_tokens.
  bool special = false;
};

/// Part of a text: an added token, or (id -1) text between them.
struct Segment {
  Range range;
  TokenId id;
};

/// Finds the leftmost, there the longest, added token, then goes on behind it.
class AddedTokenMatcher final {
 public:
  struct Entry {
    std::string text;  // what to look for; not empty, no two equal
    AddedToken token;
  };
  explicit AddedTokenMatcher(std::vector<Entry> entries);

  bool empty() const { return entries_.empty(); }

  /// Appends segments that cover `text`. With `split_special`, special tokens are passed over as
  /// text, and nothing is looked for inside them; so are tokens that a seam lies within. `seams`
  /// are places in `text`, ascending.
  void cut(std::string_view text, bool split_special, std::vector<Segment>& segments,
           std::span<const uint32_t> seams = {}) const;

 private:
  /// A trie over bytes. The edges of a node are sorted by byte and lie together.
  struct Node {
    uint32_t first_edge = 0;
    uint32_t num_edges = 0;
    int32_t entry = -1;  // of the token that ends here
  };
  struct Edge {
    unsigned char byte;
    uint32_t node;
  };
  uint32_t add_node(std::size_t begin, std::size_t end, std::size_t depth);
  /// The longest token at `at`, or -1.
  int32_t longest_at(std::string_view text, std::size_t at) const;

  std::vector<Entry> entries_;  // sorted by text
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::array<bool, 256> begins_token_{};  // by first byte
};

}  // namespace slime::text
