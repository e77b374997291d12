#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "model/families/family.h"
#include "model/foreign_checkpoint.h"

namespace slime::model {
namespace {

constexpr TokenId kMaxTokenId = (1 << 24) - 1;

/// An id, the same as a text, the spelling of a token, a list of these, or absent.
void read_eos(const FieldReader& fields, ModelConfig& config) {
  const json::value* value = fields.find("eos_token_id");
  if (value == nullptr) return;
  json::array ids;
  const json::array all = value->is_array() ? value->get_array() : json::array{*value};
  for (const json::value& one : all) {
    if (const json::string* spelling = one.if_string()) {
      std::string text(*spelling);
      int64_t id = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
      const bool is_number = error == std::errc() && end == text.data() + text.size();
      if (is_number)
        ids.push_back(id);
      else if (std::ranges::find(config.eos_spellings, text) == config.eos_spellings.end())
        config.eos_spellings.push_back(std::move(text));
    } else {
      ids.push_back(one);
    }
  }
  for (const TokenId id : fields.token_ids(ids, "eos_token_id", kMaxTokenId + int64_t{1})) {
    if (std::ranges::find(config.eos_token_ids, id) == config.eos_token_ids.end())
      config.eos_token_ids.push_back(id);
  }
}

}  // namespace

ModelConfig parse_model_config(const json::object& object, const std::string& where) {
  std::vector<std::string> problems;
  const FieldReader fields(object, where + ": ", problems);
  ModelConfig config;
  config.raw = object;
  std::vector<std::string_view> known;
  for (const Family& family : families()) known.push_back(family.model_type);
  config.model_type = fields.required().one_of("model_type", known).value_or("");
  const Family* family = find_family(config.model_type);
  if (family == nullptr) throw ConfigError(problems);
  family->read(fields, config);
  // Models that see images keep those of their text beside its other settings.
  const auto text = fields.fields("text_config");
  read_eos(!fields.has("eos_token_id") && text ? *text : fields, config);
  if (!problems.empty()) throw ConfigError(problems);
  return config;
}

ModelConfig read_model_config(const std::filesystem::path& directory) {
  const auto path = directory / "config.json";
  if (!std::filesystem::exists(path)) {
    if (const std::string foreign = foreign_checkpoint(directory); !foreign.empty())
      throw ConfigError(fmt::format("{}: is {}", directory.string(), foreign));
  }
  const json::value value = read_json_file(path, size_t{16} << 20);
  if (!value.is_object()) throw ConfigError(path.string() + ": must hold a JSON object");
  ModelConfig config = parse_model_config(value.as_object(), path.string());

  const auto generation_path = directory / "generation_config.json";
  if (std::filesystem::exists(generation_path)) {
    const json::value generation = read_json_file(generation_path, size_t{16} << 20);
    std::vector<std::string> problems;
    if (const json::object* object = generation.if_object()) {
      const FieldReader fields(*object, generation_path.string() + ": ", problems);
      read_eos(fields, config);
    } else {
      problems.push_back(generation_path.string() + ": must hold a JSON object");
    }
    if (!problems.empty()) throw ConfigError(problems);
  }
  return config;
}

}  // namespace slime::model
