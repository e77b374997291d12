#pragma once

/// Page pool of the KV cache: reference counts and the free list. No tensors here.
///
/// A page is held by each running request that reads it and by the prefix tree, at most once. Only
/// the request that allocated a page writes to it. A page knows the weight version that it was begun
/// with; what a request writes behind a page of an older version depends on that version too, so a
/// request's pages are of one version if its first is. Owned by the engine's thread.

#include <cstdint>
#include <optional>
#include <vector>

namespace slime::engine {

using PageId = int32_t;

/// In the place of a page that was given back (engine/page_window.h).
inline constexpr PageId kNoPage = -1;

class PagePool {
 public:
  explicit PagePool(int64_t num_pages);

  /// A page with one reference, of the present weights, or nothing when all are held.
  std::optional<PageId> allocate();
  void retain(PageId page);
  /// The page returns to the free list when nobody holds it any more.
  void release(PageId page);

  /// The prefix tree's own reference; such a page can be given back when nobody else holds it.
  void retain_for_tree(PageId page);
  void release_from_tree(PageId page);

  /// Pages are begun with other weights from now on. Counted here, because versions are numbers that
  /// callers choose: weights may come back under an old one.
  void weights_changed() { ++weights_; }
  bool is_current(PageId page) const { return begun_with_[page] == weights_; }

  int64_t num_pages() const { return static_cast<int64_t>(holders_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  /// Held by the prefix tree alone.
  int64_t num_evictable() const { return num_evictable_; }
  int64_t num_available() const { return num_free() + num_evictable_; }
  int32_t num_holders(PageId page) const { return holders_[page]; }
  bool is_in_tree(PageId page) const { return in_tree_[page] != 0; }

 private:
  bool is_evictable(PageId page) const { return in_tree_[page] && holders_[page] == 1; }

  std::vector<int32_t> holders_;  // per page, the tree counts as one
  std::vector<uint8_t> in_tree_;
  std::vector<PageId> free_;  // last one is handed out next
  int64_t num_evictable_ = 0;
  int64_t weights_ = 0;              // how often they have changed
  std::vector<int64_t> begun_with_;  // per page
};

}  // namespace slime::engine
