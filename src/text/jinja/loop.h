#pragma once

/// `loop`, inside {% for %}.

#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace slime::text::jinja {

class Loop final : public Object, public std::enable_shared_from_this<Loop> {
 public:
  explicit Loop(std::vector<Value> items) : items_(std::move(items)) {}

  bool is_done() const { return index_ >= items_.size(); }
  void advance() { ++index_; }
  const Value& item() const { return items_[index_]; }
  /// Forgets what changed() saw, which may hold this loop.
  void close() { last_seen_.reset(); }

  /// index, index0, revindex, revindex0, first, last, length, previtem, nextitem, depth, depth0,
  /// cycle(), changed().
  std::optional<Value> attribute(std::string_view name) override;
  std::string_view type_name() const override { return "jinja2.runtime.LoopContext"; }
  std::string repr() const override;

 private:
  Value make_cycle();
  Value make_changed();

  std::vector<Value> items_;
  std::size_t index_ = 0;
  std::optional<Value> last_seen_;  // by changed()
};

}  // namespace slime::text::jinja
