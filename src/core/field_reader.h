#pragma once

/// Reader of the fields of one JSON object into our types: the one way from foreign JSON (requests,
/// configuration files, rows, checkpoints) to a struct.
///
///   std::vector<std::string> problems;
///   const FieldReader fields(body, "", problems);
///   if (const auto sampling = fields.fields("sampling_params"))
///     params.temperature = sampling->number("temperature", 0, 2).value_or(1);
///   // problems[0]: sampling_params.temperature must be a number from 0 to 2, not "hot"
///
/// An absent field and a null one are the same, and no problem unless the field is read from
/// required(). Each accessor returns nothing (or an empty list) for a field that is absent or, after
/// the problem is told, wrong. With a list of problems nothing throws, whatever the bytes are, so
/// that one answer tells everything that is wrong; without one the first problem is thrown.

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace slime {

class FieldReader final {
 public:
  /// No list of problems grows beyond this; more of them help nobody.
  static constexpr std::size_t kMostProblems = 20;

  /// `prefix` stands before names in messages: "", "sampling_params.", "data.jsonl, line 3: ". The
  /// references outlive the reader and those made from it.
  FieldReader(const json::object& object, std::string prefix, std::vector<std::string>& problems)
      : object_(&object), prefix_(std::move(prefix)), problems_(&problems) {}
  /// The first problem is thrown as ConfigError.
  FieldReader(const json::object& object, std::string prefix)
      : object_(&object), prefix_(std::move(prefix)) {}

  /// The same fields; one that is absent or null is a problem.
  FieldReader required() const;

  /// The field's value; nullptr when it is absent or null. Tells no problem.
  const json::value* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  const json::object& raw() const { return *object_; }

  std::optional<bool> boolean(std::string_view name) const;
  /// A whole number in [low, high]; 3.0 is one, "3" and true are not.
  std::optional<int64_t> integer(std::string_view name,
                                 int64_t low = std::numeric_limits<int64_t>::min(),
                                 int64_t high = std::numeric_limits<int64_t>::max()) const;
  /// A finite number in [low, high].
  std::optional<double> number(std::string_view name,
                               double low = -std::numeric_limits<double>::infinity(),
                               double high = std::numeric_limits<double>::infinity()) const;
  std::optional<std::string> text(std::string_view name,
                                  std::size_t limit_bytes = std::string::npos) const;
  /// A string that is among `allowed`.
  std::optional<std::string> one_of(std::string_view name,
                                    std::span<const std::string_view> allowed) const;
  const json::object* object(std::string_view name) const;
  const json::array* array(std::string_view name) const;

  /// The fields of an object inside this one: "rope_scaling.factor". They are optional again.
  std::optional<FieldReader> fields(std::string_view name) const;
  /// Those of an object that stands for the field `name`, which the caller found.
  FieldReader inside(const json::object& object, std::string_view name) const;
  /// Those of each object of a list: "layers[3].kind".
  std::vector<FieldReader> list(std::string_view name) const;

  /// A list of strings.
  std::vector<std::string> strings(std::string_view name) const;
  /// A string or a list of strings, none of them empty; "" alone is an empty list.
  std::vector<std::string> texts(std::string_view name, std::size_t limit_count = std::string::npos,
                                 std::size_t limit_bytes = std::string::npos) const;
  /// A list of numbers that fit T exactly: int32_t, int64_t, uint8_t, or float and double, where
  /// 1e99999 is infinity, as this program writes it.
  template <typename T>
  std::vector<T> numbers(std::string_view name) const;
  /// A list of whole numbers from 0 to vocab_size - 1.
  std::vector<int32_t> token_ids(std::string_view name, int64_t vocab_size) const;
  std::vector<int32_t> token_ids(const json::value& list, std::string_view name,
                                 int64_t vocab_size) const;

  /// A problem when the field asks for something: it is there, and not null, false, 0, "", [] or {}.
  void refuse(std::string_view name, std::string_view why) const;
  /// A problem for each member that is not among `known`, with the name that was probably meant.
  void refuse_unknown(std::span<const std::string_view> known) const;
  /// The same as sentences, for who warns: `sampling_params.temprature is unknown; did you mean
  /// temperature?`
  std::vector<std::string> unknown_fields(std::span<const std::string_view> known) const;

  /// A problem: prefix, name, space, sentence.
  void note(std::string_view name, std::string_view sentence) const;
  /// A problem of the object itself: "layers[3] is one of more than 64 steps".
  void note_object(std::string_view sentence) const;
  /// The same with the value behind the rule: "top_p must be in (0, 1], not 2".
  void wrong(std::string_view name, std::string_view rule) const;
  void expect(bool holds, std::string_view name, std::string_view rule) const {
    if (!holds) wrong(name, rule);
  }

 private:
  /// The field's value; an absent one breaks the rule of required().
  const json::value* given(std::string_view name, std::string_view rule) const;
  void tell(std::string problem) const;

  const json::object* object_;
  std::string prefix_;
  std::vector<std::string>* problems_ = nullptr;
  bool is_required_ = false;
};

/// The whole number that `value` holds, if it does.
std::optional<int64_t> whole_number(const json::value& value);

/// For messages: a number or word as it stands, shortened; a list or an object by its kind.
std::string shown(const json::value& value);

}  // namespace slime
