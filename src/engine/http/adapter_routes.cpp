/// Routes that load adapters and let them go: SGLang's, which answer JSON, and vLLM's, which answer text.

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "core/error.h"
#include "core/json.h"
#include "engine/http/api_state.h"
#include "engine/http/request_body.h"
#include "engine/served_adapters.h"

namespace slime::engine {
namespace {

constexpr auto kLoadFields = std::to_array<std::string_view>(
    {"lora_name", "lora_path", "pinned", "load_inplace", "base_model_name"});
constexpr auto kUnloadFields = std::to_array<std::string_view>({"lora_name", "lora_int_id"});
constexpr int64_t kMostName = 256;

/// Why adapters cannot be loaded here.
constexpr std::string_view kNone =
    "this server has no adapters: start it with --enable-lora or --lora-paths";

struct Asked {
  std::string name, path;
  bool is_pinned = false, replaces = false;
};

Asked read(const HttpRequest& request, std::span<const std::string_view> known, bool loads) {
  const json::object body = parse_body(request.body);
  std::vector<std::string> problems;
  const FieldReader fields(body, "", problems);
  Asked asked;
  asked.name = fields.text("lora_name", kMostName).value_or("");
  if (asked.name.empty()) fields.note("lora_name", "must be given");
  if (loads) {
    asked.path = fields.text("lora_path", 4096).value_or("");
    if (asked.path.empty()) fields.note("lora_path", "must be given");
    asked.is_pinned = fields.boolean("pinned").value_or(false);
    asked.replaces = fields.boolean("load_inplace").value_or(false);
  }
  fields.refuse_unknown(known);
  require_none(problems);
  return asked;
}

/// The status, and what to say.
struct Outcome {
  int status = 200;
  std::string message;
};

Outcome load(ApiState& state, const Asked& asked) {
  if (state.model.adapters == nullptr) return {400, std::string(kNone)};
  const auto directory = confined_directory(state.model, "lora_path", asked.path);
  const auto loaded =
      state.model.adapters->load(asked.name, directory.string(), asked.is_pinned, asked.replaces);
  if (!loaded) return {400, loaded.error().message};
  return {200, fmt::format("Success: LoRA adapter '{}' added successfully.", asked.name)};
}

Outcome unload(ApiState& state, const Asked& asked) {
  if (state.model.adapters == nullptr) return {400, std::string(kNone)};
  const auto done = state.model.adapters->unload(asked.name);
  if (!done) {
    return {404,
            fmt::format("{}; there are: {}", done.error().message, state.model.adapters->names())};
  }
  return {200, fmt::format("Success: LoRA adapter '{}' removed successfully.", asked.name)};
}

/// SGLang's form.
HttpResponse in_json(const ApiState& state, const Outcome& outcome) {
  json::object loaded;
  if (state.model.adapters != nullptr) {
    for (const auto& adapter : state.model.adapters->all()) loaded[adapter->name] = adapter->path;
  }
  json::object body{{"success", outcome.status == 200}, {"loaded_adapters", std::move(loaded)}};
  if (outcome.status != 200) body["error_message"] = outcome.message;
  return json_response(std::move(body), outcome.status);
}

/// vLLM's form.
HttpResponse in_text(const ApiState&, const Outcome& outcome) {
  if (outcome.status != 200) return net::error_response(outcome.status, outcome.message);
  return {.status = 200, .body = outcome.message, .content_type = "text/plain"};
}

}  // namespace

void add_adapter_routes(ApiState& state, std::vector<net::HttpRoute>& routes) {
  using Answer = HttpResponse (*)(const ApiState&, const Outcome&);
  const auto add = [&](const char* path, bool loads, Answer answer) {
    routes.emplace_back(
        "POST", path, RouteClass::kWeights,
        answer_on(state.weights_thread, [&state, loads, answer](const HttpRequest& request) {
          if (loads) return answer(state, load(state, read(request, kLoadFields, true)));
          return answer(state, unload(state, read(request, kUnloadFields, false)));
        }));
  };
  add("/load_lora_adapter", true, in_json);
  add("/unload_lora_adapter", false, in_json);
  add("/v1/load_lora_adapter", true, in_text);
  add("/v1/unload_lora_adapter", false, in_text);
}

}  // namespace slime::engine
