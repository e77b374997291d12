#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "model/families/family.h"

namespace slime::model {
namespace {

constexpr TokenId kMaxTokenId = (1 << 24) - 1;

/// An id, a list of ids, or absent.
std::vector<TokenId> read_eos(const FieldReader& fields) {
  const json::value* value = fields.find("eos_token_id");
  if (value == nullptr) return {};
  return fields.token_ids(value->is_array() ? *value : json::array{*value}, "eos_token_id",
                          kMaxTokenId + int64_t{1});
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
  config.eos_token_ids = read_eos(!fields.has("eos_token_id") && text ? *text : fields);
  if (!problems.empty()) throw ConfigError(problems);
  return config;
}

ModelConfig read_model_config(const std::filesystem::path& directory) {
  const auto path = directory / "config.json";
  const json::value value = read_json_file(path, size_t{16} << 20);
  if (!value.is_object()) throw ConfigError(path.string() + ": must hold a JSON object");
  ModelConfig config = parse_model_config(value.as_object(), path.string());

  const auto generation_path = directory / "generation_config.json";
  if (std::filesystem::exists(generation_path)) {
    const json::value generation = read_json_file(generation_path, size_t{16} << 20);
    std::vector<std::string> problems;
    if (const json::object* object = generation.if_object()) {
      const FieldReader fields(*object, generation_path.string() + ": ", problems);
      for (const TokenId id : read_eos(fields)) {
        if (std::ranges::find(config.eos_token_ids, id) == config.eos_token_ids.end())
          config.eos_token_ids.push_back(id);
      }
    } else {
      problems.push_back(generation_path.string() + ": must hold a JSON object");
    }
    if (!problems.empty()) throw ConfigError(problems);
  }
  return config;
}

}  // namespace slime::model
