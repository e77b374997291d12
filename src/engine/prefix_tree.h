#pragma once

/// Prefix tree: the token prefixes whose KV cache pages are kept.
///
/// A trie whose nodes are pages: node = the 16 tokens of one page, path = the prefix. A leaf may
/// hold a page that is only partly filled; who matches a part of a page copies those slots into a
/// page of its own (copy on fill), so matching is exact to the token while sharing stays by page.
/// Nothing needs locking: a page in use has another holder in the PagePool, and a request that
/// reads a page also holds all pages before it.
///
/// A whole page is found by a hash of its tokens, chained with that of the pages before it: in the same
/// time however many others begin with the same tokens. The children of a node are in the order of their
/// tokens besides, so that the one that shares most of a page is next to where that page would stand.
///
/// Where layers keep a state of each request (StatePool), a prefix can be gone on from only where
/// somebody left a snapshot of it: match() ends at the longest one. Snapshots hang at the node of their
/// last token, and go with it, or oldest use first when their places are needed.
///
/// Where every layer has a window (engine/page_window.h), nodes may have lost their page: a request
/// gave it back before its tokens came here, or it was evicted before those behind it. A prefix is
/// cached where the pages of its last window are, whatever is missing before them.
///
/// Where some layers have a window and others see all tokens (PageWindow::num_groups), a node has a page
/// of the latter, and may have one of each group of the former: these come and go together. A prefix is
/// cached where all of the one kind are and those of its last window of the other. A page of layers that
/// see all tokens goes from the leaves, and what its node has besides goes with it; pages of layers with a
/// window go by their own last use. Whoever holds those holds the other one.
///
/// All entries belong to one weight version; clear() when it changes. Owned by the engine's thread.

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/sample.h"
#include "engine/page_pool.h"
#include "engine/page_window.h"
#include "engine/state_pool.h"

namespace slime::engine {

class PrefixTree {
 public:
  /// `states`: null where layers keep none. All outlive the tree. Layers with states and windows in all
  /// others are not expected together.
  PrefixTree(PagePool& pool, int64_t page_tokens, StatePool* states = nullptr,
             PageWindow window = {});
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;
  ~PrefixTree();

  struct Match {
    std::vector<PageId> pages;  // full pages, in order; not retained; kNoPage behind windows
    /// The same of each group of layers with a window, where there are such groups; then none of `pages`
    /// is missing.
    std::vector<std::vector<PageId>> window_pages;
    std::optional<PageId> partial_page;  // its first num_partial slots continue the match
    std::vector<PageId> partial_window_pages;
    int64_t num_partial = 0;
    int64_t num_tokens = 0;        // all of it
    std::optional<StateId> state;  // behind these tokens; not copied
    int64_t num_known = 0;         // so far pages go, with a snapshot or not
  };

  /// The longest cached prefix of `tokens`. Marks it as recently used. The caller retains the pages
  /// before it allocates.
  Match match(std::span<const TokenKey> tokens);

  /// Records that `pages` hold `tokens` (the last page may be partly filled). Where the tree
  /// already has a full page for the same tokens, the caller's page is swapped for it, in `pages`
  /// and in its references, so that equal prefixes share memory. Pages that the caller gave back are
  /// kNoPage.
  /// `state`: the one behind all tokens. True: the tree has it now, as a snapshot; false: there was one.
  /// `window_pages`: tables like `pages`, one for each group of layers with a window.
  bool insert(std::span<const TokenKey> tokens, std::vector<PageId>& pages,
              std::optional<StateId> state = {}, std::span<std::vector<PageId>> window_pages = {});

  /// Gives back pages that only the tree holds, least recently used leaves first (pages of layers with a
  /// window: least recently used ones), until the pool
  /// has `num_free` free pages or nothing can be given back. Pages in use that it comes across count
  /// as used now, so the next call does not pass them again.
  void evict_until_free(int64_t num_free);

  /// Gives back the snapshot that was used longest ago; false: there is none.
  bool evict_state();

  /// Forgets everything. Pages that requests still read stay theirs.
  void clear();

  int64_t num_pages() const { return num_pages_; }
  int64_t num_states() const { return static_cast<int64_t>(snapshots_.size()); }
  /// Pages whose tokens were compared with others so far: what the tree's work is counted in.
  int64_t num_compared() const { return num_compared_; }

 private:
  struct Node;
  struct Snapshot {
    Node* node = nullptr;
    int64_t num_tokens = 0;  // of the node's page, at least one
    StateId state = -1;
  };
  using Snapshots = std::list<Snapshot>;
  /// Of a node's page, or of those that it has of layers with a window.
  struct Use {
    Node* node = nullptr;
    bool is_of_window_pages = false;
  };
  using Uses = std::list<Use>;

  /// Of children, no two of which have the same tokens.
  struct InOrderOfTokens {
    using is_transparent = void;
    using Tokens = std::span<const TokenKey>;
    int64_t* num_compared;  // of the tree
    static Tokens of(const std::unique_ptr<Node>& node);
    bool before(Tokens a, Tokens b) const;
    bool operator()(const auto& a, const auto& b) const { return before(of(a), of(b)); }
    static Tokens of(Tokens tokens) { return tokens; }
  };
  using Children = std::set<std::unique_ptr<Node>, InOrderOfTokens>;

  struct Node {
    explicit Node(int64_t& num_compared) : children(InOrderOfTokens{&num_compared}) {}
    std::vector<TokenKey> tokens;  // of the page; fewer than page_tokens in a partly filled leaf
    PageId page = kNoPage;  // kNoPage only where every layer has a window, and there are children
    std::vector<PageId> window_pages;  // of each group of layers with a window, or none
    Node* parent = nullptr;
    Children children;
    uint64_t hash = 0;               // of all tokens so far; of whole pages
    Uses::iterator use, window_use;  // places in by_use_, with such pages
    std::vector<Snapshots::iterator> snapshots;
  };

  /// A whole page that follows `parent`.
  struct PageKey {
    const Node* parent;
    std::span<const TokenKey> tokens;
    uint64_t hash;
  };
  struct HashOfPage {
    using is_transparent = void;
    std::size_t operator()(const Node* node) const { return node->hash; }
    std::size_t operator()(const PageKey& key) const { return key.hash; }
  };
  struct IsSamePage {
    using is_transparent = void;
    bool operator()(const Node* a, const Node* b) const { return a == b; }
    bool operator()(const PageKey& key, const Node* node) const;
    bool operator()(const Node* node, const PageKey& key) const { return (*this)(key, node); }
  };

  static uint64_t hash_after(uint64_t hash, std::span<const TokenKey> tokens);
  /// The child that shares most leading tokens, and how many.
  std::pair<Node*, int64_t> closest_child(const Node& node, std::span<const TokenKey> tokens) const;
  Node* child_with_page(const Node& node, TokenKey first, PageId page) const;
  Node& add_child(Node& node, std::span<const TokenKey> tokens);
  void fill_up(Node& leaf, std::span<const TokenKey> tokens);
  bool has_groups() const { return window_.num_groups > 0; }
  bool lacks_pages(const Node& node) const {
    return node.page == kNoPage || (has_groups() && node.window_pages.empty());
  }
  /// Takes the window pages of a match from its nodes, of which `deepest` is the last.
  void add_window_pages(const Node* deepest, Match& match) const;
  /// The node and those above it, as far as a request that continues there would read them.
  void touch_path(Node* deepest);
  /// Their pages of layers that see all tokens alone.
  void touch_full_pages(Node* deepest);
  void hold_page(Node& node, PageId page);
  void drop_page(Node& node);
  /// Gives the node what `tables` have at `index`, or takes what it has already into them: both are of
  /// the same whole page of tokens.
  void share_window_pages(Node& node, std::span<std::vector<PageId>> tables, std::size_t index);
  void hold_window_pages(Node& node, std::span<const std::vector<PageId>> tables,
                         std::size_t index);
  void drop_window_pages(Node& node);
  void remove(Node& leaf);
  /// The snapshot among the children that lies deepest within `tokens`, which follow the node.
  std::optional<Snapshots::iterator> deepest_snapshot(Node& node, std::span<const TokenKey> tokens);
  bool add_snapshot(Node& node, int64_t num_tokens, StateId state);
  static uint64_t hash_of(const Snapshot& snapshot);
  void remove_snapshot(Snapshots::iterator snapshot);

  PagePool& pool_;
  const int64_t page_tokens_;
  StatePool* states_;
  const PageWindow window_;
  mutable int64_t num_compared_ = 0;
  Node root_{num_compared_};
  /// Of all pages, most recent first. Of layers that see all tokens a child's never stands before its
  /// parent's.
  Uses by_use_;
  int64_t num_pages_ = 0;
  Snapshots snapshots_;  // most recently used first
  std::unordered_set<Node*, HashOfPage, IsSamePage> whole_pages_;
  std::unordered_map<PageId, Node*> by_page_;  // of layers that see all tokens
  std::unordered_multimap<uint64_t, Snapshots::iterator> by_snapshot_;  // by their tokens' hash
};

}  // namespace slime::engine
