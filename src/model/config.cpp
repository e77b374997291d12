#include "model/config.h"

#include <fmt/format.h>

#include "core/error.h"
#include "model/families/family.h"

namespace slime::model {
namespace {

constexpr TokenId kMaxTokenId = (1 << 24) - 1;

/// An id, a list of ids, or absent.
std::vector<TokenId> read_eos(FieldReader& fields, const json::object& object) {
  if (!fields.has("eos_token_id")) return {};
  const json::value& value = object.at("eos_token_id");
  json::array ids;
  if (const json::array* list = value.if_array()) {
    ids = *list;
  } else {
    ids.push_back(value);
  }
  std::vector<TokenId> result;
  for (const json::value& id : ids) {
    json::error_code error;
    const auto number = id.is_number() ? id.to_number<int64_t>(error) : -1;
    if (error || number < 0 || number > kMaxTokenId) {
      fields.problem("eos_token_id", "must be a token id or a list of token ids");
      return {};
    }
    result.push_back(static_cast<TokenId>(number));
  }
  return result;
}

}  // namespace

ModelConfig parse_model_config(const json::object& object, const std::string& where) {
  std::vector<std::string> problems;
  FieldReader fields(object, where, problems);
  ModelConfig config;
  config.raw = object;
  config.model_type = fields.text("model_type", "");
  const Family* family = find_family(config.model_type);
  if (family == nullptr) {
    fields.problem("model_type", "supported here: " + family_names());
    throw ConfigError(problems);
  }
  family->read(fields, config);
  config.eos_token_ids = read_eos(fields, object);
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
      FieldReader fields(*object, generation_path.string(), problems);
      const auto ids = read_eos(fields, *object);
      if (!ids.empty()) config.eos_token_ids = ids;
    } else {
      problems.push_back(generation_path.string() + ": must hold a JSON object");
    }
    if (!problems.empty()) throw ConfigError(problems);
  }
  return config;
}

}  // namespace slime::model
