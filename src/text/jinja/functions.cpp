#include "text/jinja/functions.h"

#include <fmt/format.h>

#include <array>
#include <ctime>

#include "text/jinja/arguments.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace slime::text::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as in Jinja's sandbox

Value make_function(std::string_view name, std::function<Value(Interpreter&, Arguments)> call) {
  auto function = std::make_shared<Function>();
  function->repr = fmt::format("<function {}>", name);
  function->call = std::move(call);
  return std::shared_ptr<const Function>(std::move(function));
}

Value range(Interpreter& run, Arguments arguments) {
  if (arguments.positional.size() == 1)
    arguments.positional.insert(arguments.positional.begin(), Value(0));
  const BoundArguments bound("range", std::move(arguments), {"start", "stop", "step"});
  bound.require(0);
  bound.require(1);
  for (std::size_t i = 0; i < 3; ++i) {
    const Value* value = bound.find(i);
    if (value != nullptr && value->is_none())
      fail_type("'NoneType' object cannot be interpreted as an integer");
  }
  const int64_t start = bound.index(0, 0);
  const int64_t stop = bound.index(1, 0);
  const int64_t step = bound.index(2, 1);
  if (step == 0) fail_type("range() arg 3 must not be zero");
  const int64_t distance = step > 0 ? stop - start : start - stop;
  const int64_t stride = step > 0 ? step : -step;
  const int64_t count = distance <= 0 ? 0 : (distance - 1) / stride + 1;
  if (count > kMaxRange)
    fail_limit(fmt::format("a range of {} items, more than {}", count, kMaxRange));
  run.budget().take_bytes(static_cast<std::size_t>(count) * sizeof(Value));
  auto sequence = std::make_shared<Sequence>();
  sequence->kind = SequenceKind::kRange;
  sequence->extent = {.depth = 1, .size = count + 1};
  sequence->range_repr = step == 1 ? fmt::format("range({}, {})", start, stop)
                                   : fmt::format("range({}, {}, {})", start, stop, step);
  sequence->items.reserve(static_cast<std::size_t>(count));
  for (int64_t i = 0; i < count; ++i) sequence->items.emplace_back(start + i * step);
  return std::shared_ptr<const Sequence>(std::move(sequence));
}

Value dict(Interpreter& run, Arguments arguments) {
  if (arguments.positional.size() > 1) fail_type("dict expected at most 1 argument");
  std::vector<std::pair<Value, Value>> members;
  const auto put = [&](const Value& key, const Value& value) {
    if (!is_hashable(key, run.budget()))
      fail_type(fmt::format("unhashable type: '{}'", key.type_name()));
    for (auto& [old_key, old_value] : members) {
      if (!equal(old_key, key, run.budget())) continue;
      old_value = value;
      return;
    }
    run.budget().take_bytes(2 * sizeof(Value));
    members.emplace_back(key, value);
  };
  for (const Value& given : arguments.positional) {
    if (const Dict* other = given.if_dict()) {
      for (const auto& [key, value] : other->members) put(key, value);
      continue;
    }
    for (const Value& pair : iterate(given, run.budget())) {
      const std::vector<Value> parts = iterate(pair, run.budget());
      if (parts.size() != 2) fail_type("dictionary update sequence element has not length 2");
      put(parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) put(name, value);
  return make_dict(std::move(members));
}

/// joiner(", "): nothing at the first call, the separator at all others.
Value joiner(Interpreter&, Arguments arguments) {
  const BoundArguments bound("joiner", std::move(arguments), {"sep"});
  return make_function("joiner", [separator = bound.text(0).value_or(", "),
                                  used = std::make_shared<bool>(false)](Interpreter&, Arguments) {
    return Value(std::exchange(*used, true) ? separator : "");
  });
}

/// cycler('a', 'b'): current, next(), reset().
class Cycler final : public Object, public std::enable_shared_from_this<Cycler> {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {}
  std::optional<Value> attribute(std::string_view name) override {
    if (name == "current") return items_[position_];
    if (name == "next") {
      return make_function(name, [self = shared_from_this()](Interpreter&, Arguments) {
        const Value value = self->items_[self->position_];
        self->position_ = (self->position_ + 1) % self->items_.size();
        return value;
      });
    }
    if (name == "reset") {
      return make_function(name, [self = shared_from_this()](Interpreter&, Arguments) {
        self->position_ = 0;
        return Value(None{});
      });
    }
    return std::nullopt;
  }
  std::string_view type_name() const override { return "jinja2.utils.Cycler"; }
  std::string repr() const override { return "<Cycler>"; }

 private:
  std::vector<Value> items_;
  std::size_t position_ = 0;
};

Value cycler(Interpreter&, Arguments arguments) {
  if (arguments.positional.empty()) fail_type("at least one item has to be provided");
  return std::shared_ptr<Object>(std::make_shared<Cycler>(std::move(arguments.positional)));
}

Value raise_exception(Interpreter&, Arguments arguments) {
  const BoundArguments bound("raise_exception", std::move(arguments), {"message"});
  throw EvaluationError{TemplateErrorKind::kTemplate, to_str(bound.require(0))};
}

Value strftime_now(Interpreter& run, Arguments arguments) {
  const BoundArguments bound("strftime_now", std::move(arguments), {"format"});
  const std::string* format = bound.require(0).if_string();
  if (format == nullptr)
    fail_type(
        fmt::format("strftime() argument 1 must be str, not {}", bound.require(0).type_name()));
  if (format->size() > 1000) fail_limit("a time format of more than 1000 bytes");
  const auto day = std::chrono::floor<std::chrono::days>(run.now());
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss time(run.now() - day);
  std::tm fields{};
  fields.tm_year = static_cast<int>(date.year()) - 1900;
  fields.tm_mon = static_cast<int>(static_cast<unsigned>(date.month())) - 1;
  fields.tm_mday = static_cast<int>(static_cast<unsigned>(date.day()));
  fields.tm_hour = static_cast<int>(time.hours().count());
  fields.tm_min = static_cast<int>(time.minutes().count());
  fields.tm_sec = static_cast<int>(time.seconds().count());
  fields.tm_wday = static_cast<int>(std::chrono::weekday(day).c_encoding());
  fields.tm_yday = static_cast<int>((day - std::chrono::local_days(date.year() / 1 / 1)).count());
  // The final blank tells an empty result from one that does not fit.
  std::array<char, 16384> buffer;
  const std::size_t size =
      std::strftime(buffer.data(), buffer.size(), (*format + " ").c_str(), &fields);
  if (size == 0) fail_limit("a time of more than 16 kB");
  return std::string(buffer.data(), size - 1);
}

}  // namespace

std::vector<std::pair<std::string_view, Value>> global_functions() {
  const auto entry = [](std::string_view name, Value (*call)(Interpreter&, Arguments)) {
    return std::pair<std::string_view, Value>(name, make_function(name, call));
  };
  return {
      entry("range", range),
      entry("namespace",
            [](Interpreter& run, Arguments arguments) {
              return run.new_namespace(std::move(arguments));
            }),
      entry("raise_exception", raise_exception),
      entry("strftime_now", strftime_now),
      entry("dict", dict),
      entry("joiner", joiner),
      entry("cycler", cycler),
  };
}

}  // namespace slime::text::jinja
