#include "engine/http/adapter_fields.h"

#include <fmt/format.h>

#include "engine/http/api_error.h"
#include "engine/served_adapters.h"

namespace slime::engine {

std::string adapter_named(const ServedModel& model, std::string_view name) {
  if (name.empty()) return {};
  std::string word(name);
  if (model.adapters != nullptr && model.adapters->find(word) != nullptr) return word;
  throw ApiError({.status = 404, .code = "model_not_found", .param = "lora_path"},
                 fmt::format("no adapter {} is loaded; there are: {}", word,
                             model.adapters == nullptr ? "none" : model.adapters->names()));
}

std::string adapter_of_model(const ServedModel& model, std::string_view word) {
  if (word.empty() || word == model.name || word == "default") return {};
  const std::string base = model.name + ":";
  if (word.starts_with(base)) return adapter_named(model, word.substr(base.size()));
  // Without adapters a server answers to any name.
  return model.adapters == nullptr ? std::string() : adapter_named(model, word);
}

}  // namespace slime::engine
