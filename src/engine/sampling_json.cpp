#include "engine/sampling_json.h"

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <utility>

namespace slime::engine {
namespace {

/// One function for each type that a parameter has.
struct Reader {
  const FieldReader& fields;
  int64_t vocab_size;

  void read(std::string_view name, bool& flag) const { flag = fields.boolean(name).value_or(flag); }
  void read(std::string_view name, int64_t& number) const {
    number = fields.integer(name).value_or(number);
  }
  void read(std::string_view name, double& number) const {
    number = fields.number(name).value_or(number);
  }
  void read(std::string_view name, std::optional<uint64_t>& seed) const {
    if (const auto number = fields.integer(name)) seed = static_cast<uint64_t>(*number);
  }
  void read_texts(const SamplingField& field, std::string_view name,
                  std::vector<std::string>& texts) const {
    if (fields.has(name)) texts = fields.texts(name, field.most, SamplingLimits::kMaxStopBytes);
  }
  /// Lists that a client empties by mistake would be a rule without effect.
  void check_members(const SamplingField& field, std::string_view name) const {
    const json::value* given = field.needs_members ? fields.find(name) : nullptr;
    if (given == nullptr) return;
    const bool is_empty = (given->is_array() && given->get_array().empty()) ||
                          (given->is_string() && given->get_string().empty());
    if (is_empty) fields.note(name, "must not be empty; leave it out");
  }
  void read(std::string_view name, std::string& text) const {
    const auto given = fields.text(name, SamplingLimits::kMaxGrammarBytes);
    if (!given) return;
    if (given->empty()) return fields.note(name, "must not be empty");
    text = *given;
  }
  void read_json(std::string_view name, std::string& text) const {
    const json::value* given = fields.find(name);
    if (given == nullptr || !given->is_object()) return read(name, text);
    text = json_text(*given);
    if (text.size() > SamplingLimits::kMaxGrammarBytes)
      fields.note(name, fmt::format("may have {} bytes", SamplingLimits::kMaxGrammarBytes));
  }
  void read(std::string_view name, std::vector<TokenId>& ids) const {
    if (fields.has(name)) ids = fields.token_ids(name, vocab_size);
  }
  void read(std::string_view name, std::vector<std::pair<TokenId, double>>& bias) const {
    const json::object* members = fields.object(name);
    if (members == nullptr) return;
    if (members->size() > SamplingLimits::kMaxLogitBias)
      return fields.note(name, fmt::format("may have {} members", SamplingLimits::kMaxLogitBias));
    bias.clear();
    for (const auto& [key, value] : *members) {
      TokenId id = -1;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      const bool is_id = error == std::errc() && end == key.data() + key.size();
      if (!is_id || !value.is_number())
        return fields.note(name, "must map token ids, written as strings, to numbers");
      bias.emplace_back(id, value.to_number<double>());
    }
  }
};

json::value shown_to_users(const std::string& text) {
  return text.empty() ? json::value() : json::value(text);
}
json::value shown_to_users(const std::vector<std::string>& texts) {
  return texts.empty() ? json::value() : json::value_from(texts);
}
json::value shown_to_users(const std::vector<TokenId>& ids) {
  return ids.empty() ? json::value() : json::value_from(ids);
}
json::value shown_to_users(const std::vector<std::pair<TokenId, double>>& bias) {
  json::object members;
  for (const auto& [id, number] : bias) members[std::to_string(id)] = number;
  return members;
}
json::value shown_to_users(const std::optional<uint64_t>& seed) {
  return seed ? json::value(static_cast<int64_t>(*seed)) : json::value();
}
json::value shown_to_users(const auto& plain) { return plain; }

}  // namespace

void read_sampling_params(const FieldReader& fields, SamplingNames names, int64_t vocab_size,
                          SamplingParams& params) {
  const Reader reader{.fields = fields, .vocab_size = vocab_size};
  each_sampling_field(params, [&](const SamplingField& field, auto& member) {
    const bool is_left = names == SamplingNames::kOpenAi &&
                         static_cast<const void*>(&member) == &params.max_new_tokens;
    if (is_left) return;
    using Member = std::remove_cvref_t<decltype(member)>;
    const std::string_view name = name_of(field, names);
    reader.check_members(field, name);
    if constexpr (std::is_same_v<Member, std::string>) {
      if (field.is_json) return reader.read_json(name, member);
    }
    if constexpr (std::is_same_v<Member, std::vector<std::string>>)
      reader.read_texts(field, name, member);
    else
      reader.read(name, member);
  });
}

std::vector<std::string_view> sampling_names(SamplingNames names) {
  std::vector<std::string_view> all;
  const SamplingParams params;
  each_sampling_field(params, [&](const SamplingField& field, const auto&) {
    all.push_back(name_of(field, names));
  });
  return all;
}

json::object to_json(const SamplingParams& params) {
  json::object object;
  std::vector<json::value> defaults;
  const SamplingParams silent;
  each_sampling_field(silent, [&](const SamplingField&, const auto& member) {
    defaults.push_back(shown_to_users(member));
  });
  std::size_t i = 0;
  each_sampling_field(params, [&](const SamplingField& field, const auto& member) {
    json::value value = shown_to_users(member);
    const bool is_default = value == defaults[i++];
    if (field.is_always_given || !is_default) object[field.name] = std::move(value);
  });
  return object;
}

}  // namespace slime::engine
