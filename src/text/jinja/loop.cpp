#include "text/jinja/loop.h"

#include <fmt/format.h>

#include "text/jinja/budget.h"
#include "text/jinja/interpreter.h"

namespace slime::text::jinja {

std::optional<Value> Loop::attribute(std::string_view name) {
  const std::size_t size = items_.size();
  if (name == "index") return index_ + 1;
  if (name == "index0") return index_;
  if (name == "revindex") return size - index_;
  if (name == "revindex0") return size - index_ - 1;
  if (name == "first") return index_ == 0;
  if (name == "last") return index_ + 1 == size;
  if (name == "length") return size;
  if (name == "depth") return 1;
  if (name == "depth0") return 0;
  if (name == "previtem")
    return index_ > 0 ? items_[index_ - 1] : make_undefined("there is no previous item");
  if (name == "nextitem")
    return index_ + 1 < size ? items_[index_ + 1] : make_undefined("there is no next item");
  if (name == "cycle") return make_cycle();
  if (name == "changed") return make_changed();
  return std::nullopt;
}

std::string Loop::repr() const {
  return fmt::format("<LoopContext {}/{}>", index_ + 1, items_.size());
}

Value Loop::make_cycle() {
  auto function = std::make_shared<Function>();
  function->repr = "<method>";
  function->call = [self = shared_from_this()](Interpreter&, Arguments arguments) {
    if (arguments.positional.empty()) fail_type("no items for cycling given");
    return arguments.positional[self->index_ % arguments.positional.size()];
  };
  return std::shared_ptr<const Function>(std::move(function));
}

Value Loop::make_changed() {
  auto function = std::make_shared<Function>();
  function->repr = "<method>";
  function->call = [self = shared_from_this()](Interpreter& run, Arguments arguments) -> Value {
    Value seen = make_tuple(std::move(arguments.positional));
    if (self->last_seen_ && equal(*self->last_seen_, seen, run.budget())) return false;
    self->last_seen_ = std::move(seen);
    return true;
  };
  return std::shared_ptr<const Function>(std::move(function));
}

}  // namespace slime::text::jinja
