#include "engine/sampling_params.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <type_traits>

namespace slime::engine {
namespace {

bool is_within(const SamplingRange& range, double value) {
  if (range.or_value && value == *range.or_value) return true;
  return value >= range.low && value <= range.high && !(range.excludes_low && value == range.low);
}

std::string allowed_words(const SamplingRange& range) {
  const std::string other = range.or_value ? fmt::format("{} or ", *range.or_value) : "";
  return fmt::format("{}in {}{}, {}]", other, range.excludes_low ? '(' : '[', range.low,
                     range.high);
}

std::string_view name_of_member(const SamplingParams& params, const int64_t& member,
                                SamplingNames names) {
  std::string_view name;
  each_sampling_field(params, [&](const SamplingField& field, const auto& value) {
    if (static_cast<const void*>(&value) == &member) name = name_of(field, names);
  });
  return name;
}

}  // namespace

std::vector<std::string_view> grammars_of(const SamplingParams& params, SamplingNames names) {
  std::vector<std::string_view> given;
  each_sampling_field(params, [&](const SamplingField& field, const auto& value) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::string>)
      if (!value.empty()) given.push_back(name_of(field, names));
  });
  return given;
}

std::vector<std::string> problems_of(const SamplingParams& params, int64_t vocab_size,
                                     SamplingNames names) {
  std::vector<std::string> problems;
  const auto tell = [&](std::string_view name, std::string_view allowed, const auto& value) {
    problems.push_back(fmt::format("{} must be {}, got {}", name, allowed, value));
  };
  each_sampling_field(params, [&](const SamplingField& field, const auto& value) {
    using Value = std::remove_cvref_t<decltype(value)>;
    const std::string_view name = name_of(field, names);
    if constexpr (std::is_same_v<Value, int64_t> || std::is_same_v<Value, double>) {
      if (!is_within(field.range, static_cast<double>(value)))
        tell(name, allowed_words(field.range), value);
    } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
      for (const std::string& text : value)
        if (text.empty()) tell(name, "made of non-empty strings", "\"\"");
    } else if constexpr (std::is_same_v<Value, std::vector<std::pair<TokenId, double>>>) {
      for (const auto& [id, number] : value) {
        if (id < 0 || id >= vocab_size)
          tell(fmt::format("a key of {}", name), fmt::format("a token id below {}", vocab_size),
               id);
        if (!is_within(field.range, number))
          tell(fmt::format("a value of {}", name), allowed_words(field.range), number);
      }
    }
  });
  for (const TokenId id : params.allowed_token_ids) {
    if (id >= 0 && id < vocab_size) continue;
    problems.push_back(
        fmt::format("allowed_token_ids holds {}; the vocabulary has {} ids", id, vocab_size));
    break;
  }
  if (const auto grammars = grammars_of(params, names); grammars.size() > 1) {
    problems.push_back(fmt::format("{} are {} grammars; a request may have one",
                                   fmt::join(grammars, ", "), grammars.size()));
  }
  if (params.min_new_tokens > params.max_new_tokens) {
    const std::string_view most = name_of_member(params, params.max_new_tokens, names);
    tell(name_of_member(params, params.min_new_tokens, names),
         fmt::format("at most {} = {}", most, params.max_new_tokens), params.min_new_tokens);
  }
  return problems;
}

}  // namespace slime::engine
