#include "engine/http/adapter_fields.h"

#include <fmt/format.h>

#include <string>

#include "engine/http/api_error.h"
#include "engine/served_adapters.h"

namespace slime::engine {

void take_adapter_named(const ServedModel& model, std::string_view name, GenerateRequest& request) {
  request.adapter = name;
  request.adapter_version = nullptr;
  if (name.empty()) return;
  if (model.adapters != nullptr) request.adapter_version = model.adapters->find(request.adapter);
  if (request.adapter_version != nullptr) return;
  throw ApiError({.status = 404, .code = "model_not_found", .param = "lora_path"},
                 fmt::format("no adapter {} is loaded; there are: {}", name,
                             model.adapters == nullptr ? "none" : model.adapters->names()));
}

void take_adapter_of_model(const ServedModel& model, std::string_view word,
                           GenerateRequest& request) {
  const std::string base = model.name + ":";
  const bool is_base = word.empty() || word == model.name || word == "default";
  if (word.starts_with(base)) {
    word.remove_prefix(base.size());
  } else if (is_base || model.adapters == nullptr) {
    word = {};  // without adapters a server answers to any name
  }
  take_adapter_named(model, word, request);
}

}  // namespace slime::engine
