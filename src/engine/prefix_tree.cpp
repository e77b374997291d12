#include "engine/prefix_tree.h"

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include "core/error.h"
#include "core/splitmix64.h"

namespace slime::engine {
namespace {

constexpr int kMostNeighbours = 8;

int64_t num_common(std::span<const TokenKey> a, std::span<const TokenKey> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

/// Nobody can choose tokens whose hashes are the same.
uint64_t random_start() {
  std::random_device entropy;
  return uint64_t{entropy()} << 32 | entropy();
}

}  // namespace

PrefixTree::PrefixTree(PagePool& pool, int64_t page_tokens, StatePool* states, PageWindow window)
    : pool_(pool), page_tokens_(page_tokens), states_(states), window_(window) {
  root_.hash = random_start();
  check(!window_ || (states_ == nullptr && window_.block_tokens % page_tokens == 0),
        "blocks of a window are whole pages, of layers without states");
}

PrefixTree::~PrefixTree() { clear(); }

std::span<const TokenKey> PrefixTree::InOrderOfTokens::of(const std::unique_ptr<Node>& node) {
  return node->tokens;
}

bool PrefixTree::InOrderOfTokens::before(Tokens a, Tokens b) const {
  ++*num_compared;
  return std::ranges::lexicographical_compare(a, b);
}

bool PrefixTree::IsSamePage::operator()(const PageKey& key, const Node* node) const {
  return node->parent == key.parent && std::ranges::equal(node->tokens, key.tokens);
}

uint64_t PrefixTree::hash_after(uint64_t hash, std::span<const TokenKey> tokens) {
  for (const TokenKey key : tokens) hash = splitmix64(hash ^ key);
  return hash;
}

std::pair<PrefixTree::Node*, int64_t> PrefixTree::closest_child(
    const Node& node, std::span<const TokenKey> tokens) const {
  std::pair<Node*, int64_t> best{nullptr, 0};
  if (tokens.empty() || node.children.empty()) return best;
  const auto here = tokens.first(std::min<std::size_t>(tokens.size(), page_tokens_));
  if (static_cast<int64_t>(here.size()) == page_tokens_) {
    const auto found = whole_pages_.find(PageKey{&node, here, hash_after(node.hash, here)});
    if (found != whole_pages_.end()) return {*found, page_tokens_};
  }
  // Those that share most are neighbours of the place where `here` would stand. Of equal ones one that
  // has pages is better, as far as a few of them show.
  const auto look_at = [&](Node& child) {
    ++num_compared_;
    const int64_t common = num_common(child.tokens, here);
    if (common == 0 || common < best.second) return false;
    if (common > best.second || lacks_pages(*best.first)) best = {&child, common};
    return lacks_pages(*best.first);
  };
  const auto at = node.children.lower_bound(here);
  int looks = kMostNeighbours;
  for (auto next = at; next != node.children.end() && look_at(**next) && --looks > 0;) ++next;
  looks = kMostNeighbours;
  for (auto next = at; next != node.children.begin() && look_at(**--next) && --looks > 0;) {
  }
  return best;
}

PrefixTree::Node* PrefixTree::child_with_page(const Node& node, TokenKey first, PageId page) const {
  const auto found = by_page_.find(page);
  if (found == by_page_.end()) return nullptr;
  Node* child = found->second;
  return child->parent == &node && child->tokens[0] == first ? child : nullptr;
}

PrefixTree::Node& PrefixTree::add_child(Node& node, std::span<const TokenKey> tokens) {
  auto fresh = std::make_unique<Node>(num_compared_);
  fresh->parent = &node;
  Node& child = *fresh;
  fill_up(child, tokens);
  const bool is_new = node.children.insert(std::move(fresh)).second;
  check(is_new, "no two pages of the prefix tree have the same tokens");
  return child;
}

/// It is not among its parent's children at this moment, or has no tokens yet.
void PrefixTree::fill_up(Node& leaf, std::span<const TokenKey> tokens) {
  leaf.tokens.assign(tokens.begin(), tokens.end());
  leaf.hash = hash_after(leaf.parent->hash, tokens);
  if (static_cast<int64_t>(tokens.size()) == page_tokens_) whole_pages_.insert(&leaf);
}

void PrefixTree::touch_path(Node* deepest) {
  int64_t count = window_ ? (window_.tokens + window_.block_tokens) / page_tokens_ + 1
                          : std::numeric_limits<int64_t>::max();
  for (Node* node = deepest; node != &root_ && (count > 0 || has_groups());
       node = node->parent, --count) {
    if (node->page != kNoPage) by_use_.splice(by_use_.begin(), by_use_, node->use);
    if (count > 0 && !node->window_pages.empty())
      by_use_.splice(by_use_.begin(), by_use_, node->window_use);
  }
}

void PrefixTree::touch_full_pages(Node* deepest) {
  for (Node* node = deepest; node != &root_; node = node->parent)
    by_use_.splice(by_use_.begin(), by_use_, node->use);
}

void PrefixTree::hold_page(Node& node, PageId page) {
  check(pool_.is_current(page), "the prefix tree has pages of the present weights only");
  pool_.retain_for_tree(page);
  node.page = page;
  by_page_[page] = &node;
  node.use = by_use_.insert(by_use_.begin(), {&node, false});
  ++num_pages_;
}

void PrefixTree::drop_page(Node& node) {
  if (node.page == kNoPage) return;
  pool_.release_from_tree(node.page);
  by_use_.erase(node.use);
  by_page_.erase(node.page);
  node.page = kNoPage;
  --num_pages_;
}

void PrefixTree::hold_window_pages(Node& node, std::span<const std::vector<PageId>> tables,
                                   std::size_t index) {
  for (const std::vector<PageId>& table : tables) {
    check(pool_.is_current(table[index]), "the prefix tree has pages of the present weights only");
    pool_.retain_for_tree(table[index]);
    node.window_pages.push_back(table[index]);
  }
  node.window_use = by_use_.insert(by_use_.begin(), {&node, true});
  num_pages_ += window_.num_groups;
}

void PrefixTree::drop_window_pages(Node& node) {
  if (node.window_pages.empty()) return;
  for (const PageId page : node.window_pages) pool_.release_from_tree(page);
  by_use_.erase(node.window_use);
  node.window_pages.clear();
  num_pages_ -= window_.num_groups;
}

void PrefixTree::share_window_pages(Node& node, std::span<std::vector<PageId>> tables,
                                    std::size_t index) {
  if (tables.empty() || tables[0][index] == kNoPage) return;
  if (node.window_pages.empty()) {
    if (!pool_.is_in_tree(tables[0][index])) hold_window_pages(node, tables, index);
    return;
  }
  for (std::size_t group = 0; group < tables.size(); ++group) {
    PageId& page = tables[group][index];
    if (page == node.window_pages[group]) continue;
    pool_.retain(node.window_pages[group]);
    pool_.release(std::exchange(page, node.window_pages[group]));
  }
}

std::optional<PrefixTree::Snapshots::iterator> PrefixTree::deepest_snapshot(
    Node& node, std::span<const TokenKey> tokens) {
  std::optional<Snapshots::iterator> best;
  if (by_snapshot_.empty()) return best;
  uint64_t hash = node.hash;
  const auto most = std::min<int64_t>(static_cast<int64_t>(tokens.size()), page_tokens_);
  for (int64_t count = 1; count <= most; ++count) {
    hash = hash_after(hash, tokens.subspan(static_cast<std::size_t>(count - 1), 1));
    const auto [begin, end] = by_snapshot_.equal_range(hash);
    const auto found = std::find_if(begin, end, [&](const auto& entry) {
      const Snapshot& snapshot = *entry.second;
      return snapshot.num_tokens == count && snapshot.node->parent == &node &&
             std::equal(tokens.begin(), tokens.begin() + count, snapshot.node->tokens.begin());
    });
    if (found != end) best = found->second;
  }
  return best;
}

PrefixTree::Match PrefixTree::match(std::span<const TokenKey> tokens) {
  Match match;  // of pages
  Match with_state;
  std::optional<Snapshots::iterator> deepest;
  int64_t present_from = 0;  // pages of all tokens from here on are there
  int64_t num_usable = 0;    // tokens whose last window is
  Node* node = &root_;
  while (true) {
    const auto rest = tokens.subspan(match.num_tokens);
    if (const auto snapshot = deepest_snapshot(*node, rest)) {
      deepest = snapshot;
      with_state = match;
      with_state.num_tokens += (*snapshot)->num_tokens;
      if ((*snapshot)->num_tokens < page_tokens_) {
        with_state.partial_page = (*snapshot)->node->page;
        with_state.num_partial = (*snapshot)->num_tokens;
      } else {
        with_state.pages.push_back((*snapshot)->node->page);
      }
    }
    const auto [child, common] = closest_child(*node, rest);
    if (common == 0 || (common < page_tokens_ && lacks_pages(*child))) break;
    node = child;
    match.num_tokens += common;
    if (lacks_pages(*child)) present_from = match.num_tokens;
    if (present_from <= window_.first_needed(match.num_tokens)) num_usable = match.num_tokens;
    if (common < page_tokens_) {
      match.partial_page = child->page;
      match.partial_window_pages = child->window_pages;
      match.num_partial = common;
      break;
    }
    match.pages.push_back(child->page);
  }
  if (match.num_tokens > num_usable) {
    for (int64_t i = static_cast<int64_t>(match.pages.size()) + (match.partial_page ? 1 : 0);
         i * page_tokens_ > num_usable; --i)
      node = node->parent;
    match.pages.resize(num_usable / page_tokens_);
    match.partial_page.reset();
    match.partial_window_pages.clear();
    match.num_partial = 0;
    match.num_tokens = num_usable;
  }
  if (has_groups()) {
    add_window_pages(node, match);
  } else {
    std::fill_n(match.pages.begin(), window_.first_needed(match.num_tokens) / page_tokens_,
                kNoPage);
  }
  touch_path(node);
  match.num_known = match.num_tokens;
  if (states_ == nullptr) return match;
  with_state.num_known = match.num_tokens;
  if (deepest) {
    with_state.state = (*deepest)->state;
    snapshots_.splice(snapshots_.begin(), snapshots_, *deepest);
    touch_path((*deepest)->node);
  }
  return with_state;
}

void PrefixTree::add_window_pages(const Node* deepest, Match& match) const {
  match.window_pages.assign(static_cast<std::size_t>(window_.num_groups),
                            std::vector<PageId>(match.pages.size(), kNoPage));
  const Node* node = match.partial_page ? deepest->parent : deepest;
  const int64_t begin = window_.first_needed(match.num_tokens) / page_tokens_;
  for (auto index = static_cast<int64_t>(match.pages.size()) - 1; index >= begin; --index) {
    check(!node->window_pages.empty(), "a match has the pages of its last window");
    for (std::size_t group = 0; group < match.window_pages.size(); ++group)
      match.window_pages[group][static_cast<std::size_t>(index)] = node->window_pages[group];
    node = node->parent;
  }
}

bool PrefixTree::insert(std::span<const TokenKey> tokens, std::vector<PageId>& pages,
                        std::optional<StateId> state, std::span<std::vector<PageId>> window_pages) {
  check(static_cast<int64_t>(window_pages.size()) == window_.num_groups,
        "each group of layers with a window has its pages");
  Node* node = &root_;
  for (std::size_t index = 0;
       static_cast<int64_t>(index) * page_tokens_ < static_cast<int64_t>(tokens.size()); ++index) {
    const auto rest = tokens.subspan(index * page_tokens_);
    const auto here = rest.first(std::min<std::size_t>(rest.size(), page_tokens_));
    const auto [child, common] = closest_child(*node, here);
    const auto length = static_cast<int64_t>(here.size());
    const bool is_here = pages[index] != kNoPage;
    if (child != nullptr && common == length) {
      // Known already, perhaps as the beginning of a fuller page.
      if (length == page_tokens_ && child->page != pages[index] && is_here) {
        if (child->page != kNoPage) {
          pool_.retain(child->page);
          pool_.release(pages[index]);
          pages[index] = child->page;
        } else if (!pool_.is_in_tree(pages[index])) {
          hold_page(*child, pages[index]);
        }
      }
      if (length == page_tokens_) share_window_pages(*child, window_pages, index);
      node = child;
      continue;
    }
    if (Node* recorded = is_here ? child_with_page(*node, here[0], pages[index]) : nullptr) {
      // The caller filled more of a page that it had recorded before.
      check(static_cast<int64_t>(recorded->tokens.size()) < length,
            "a recorded page keeps its tokens");
      // As far as its window pages are there, whoever filled this page filled those.
      for (std::size_t group = 0; group < recorded->window_pages.size(); ++group) {
        const PageId own = window_pages[group][index];
        check(own == kNoPage || own == recorded->window_pages[group],
              "a page that is recorded again has the window pages that it had");
      }
      auto out =
          node->children.extract(node->children.find(InOrderOfTokens::Tokens(recorded->tokens)));
      fill_up(*recorded, here);
      node->children.insert(std::move(out));
      node = recorded;
      continue;
    }
    node = &add_child(*node, here);
    if (is_here) hold_page(*node, pages[index]);
    share_window_pages(*node, window_pages, index);
  }
  touch_path(node);
  if (!state || tokens.empty()) return false;
  return add_snapshot(*node, (static_cast<int64_t>(tokens.size()) - 1) % page_tokens_ + 1, *state);
}

bool PrefixTree::add_snapshot(Node& node, int64_t num_tokens, StateId state) {
  const auto same =
      std::ranges::find(node.snapshots, num_tokens, [](const auto& it) { return it->num_tokens; });
  if (same != node.snapshots.end()) {
    snapshots_.splice(snapshots_.begin(), snapshots_, *same);
    return false;
  }
  const auto added = snapshots_.insert(snapshots_.begin(), {&node, num_tokens, state});
  node.snapshots.push_back(added);
  by_snapshot_.emplace(hash_of(*added), added);
  return true;
}

uint64_t PrefixTree::hash_of(const Snapshot& snapshot) {
  const std::span<const TokenKey> tokens = snapshot.node->tokens;
  return hash_after(snapshot.node->parent->hash,
                    tokens.first(static_cast<std::size_t>(snapshot.num_tokens)));
}

void PrefixTree::remove_snapshot(Snapshots::iterator snapshot) {
  std::erase(snapshot->node->snapshots, snapshot);
  const auto [begin, end] = by_snapshot_.equal_range(hash_of(*snapshot));
  by_snapshot_.erase(
      std::find_if(begin, end, [&](const auto& entry) { return entry.second == snapshot; }));
  states_->release(snapshot->state);
  snapshots_.erase(snapshot);
}

bool PrefixTree::evict_state() {
  if (snapshots_.empty()) return false;
  remove_snapshot(std::prev(snapshots_.end()));
  return true;
}

void PrefixTree::remove(Node& leaf) {
  while (!leaf.snapshots.empty()) remove_snapshot(leaf.snapshots.back());
  // What led to it alone goes with it.
  for (Node* node = &leaf; node != &root_ && node->children.empty();) {
    if (node != &leaf && node->page != kNoPage) break;
    drop_page(*node);
    drop_window_pages(*node);
    Node* parent = node->parent;
    whole_pages_.erase(node);
    parent->children.erase(parent->children.find(InOrderOfTokens::Tokens(node->tokens)));
    node = parent;
  }
}

void PrefixTree::evict_until_free(int64_t num_free) {
  const Use* first_in_use = nullptr;
  while (pool_.num_free() < num_free && !by_use_.empty() && &by_use_.back() != first_in_use) {
    Use& oldest = by_use_.back();
    Node& node = *oldest.node;
    // It goes by its own last use.
    const bool is_of_window = oldest.is_of_window_pages || (window_ && !has_groups());
    const PageId page = oldest.is_of_window_pages ? node.window_pages[0] : node.page;
    const bool is_unused = pool_.num_holders(page) == 1;
    if (is_unused && (oldest.is_of_window_pages || node.children.empty() || is_of_window)) {
      if (oldest.is_of_window_pages) {
        drop_window_pages(node);
      } else {
        node.children.empty() ? remove(node) : drop_page(node);
      }
      first_in_use = nullptr;  // it may have gone with its node
      continue;
    }
    if (first_in_use == nullptr) first_in_use = &oldest;
    if (is_of_window) {
      // A request does not hold the pages before its own.
      by_use_.splice(by_use_.begin(), by_use_, std::prev(by_use_.end()));
    } else {
      touch_full_pages(&node);
    }
  }
}

void PrefixTree::clear() {
  while (evict_state()) {
  }
  for (const Use& use : by_use_) {
    if (!use.is_of_window_pages) {
      pool_.release_from_tree(use.node->page);
      continue;
    }
    for (const PageId page : use.node->window_pages) pool_.release_from_tree(page);
  }
  by_use_.clear();
  num_pages_ = 0;
  whole_pages_.clear();
  by_page_.clear();
  root_.children.clear();
}

}  // namespace slime::engine
