/// Routes that change or look at the weights: from a directory, their name, their checksums, one by one.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "core/error.h"
#include "core/json.h"
#include "engine/http/api_state.h"
#include "engine/http/request_body.h"
#include "engine/http/weight_call.h"
#include "engine/http/weight_pull.h"

namespace slime::engine {
namespace {

// Fields of each body. Those that are read come first; the others are SGLang's and change nothing
// here: one process, no allocator's cache to empty, CUDA graphs that read the weights where they
// are, a KV cache that is emptied always (docs/how/engine_client.md).
constexpr auto kDiskFields = std::to_array<std::string_view>(
    {"model_path", "weight_version", "abort_all_requests", "keep_pause", "load_format", "manifest",
     //
     "is_async", "torch_empty_cache", "recapture_cuda_graph", "token_step", "flush_cache"});
constexpr auto kCheckerFields =
    std::to_array<std::string_view>({"action", "allow_quant_error", "skip_tensor_list"});
constexpr auto kVersionFields =
    std::to_array<std::string_view>({"new_version", "abort_all_requests"});
constexpr auto kPullFields =
    std::to_array<std::string_view>({"local_checkpoint_dir", "source_dir", "target_version"});
constexpr auto kNameFields = std::to_array<std::string_view>({"name", "truncate_size"});
constexpr auto kProcessFields =
    std::to_array<std::string_view>({"restore_weights_before_load", "post_process_quantization"});

HttpResponse update_weights_from_disk(ApiState& state, const HttpRequest& request) {
  const json::object body = parse_body(request.body);
  std::vector<std::string> problems;
  FieldReader fields(body, "", problems);
  const std::string model_path = fields.text("model_path", 4096).value_or("");
  if (model_path.empty()) fields.note("model_path", "must be given");
  WeightCall call = WeightCall::read(fields);
  call.keeps_pause = fields.boolean("keep_pause").value_or(false);
  const std::string load_format = fields.text("load_format", 64).value_or("auto");
  if (load_format != "auto" && load_format != "safetensors") {
    fields.note("load_format", "must be \"auto\" or \"safetensors\"");
  }
  fields.refuse("manifest", "is not supported");
  fields.refuse_unknown(kDiskFields);
  require_none(problems);
  const std::filesystem::path directory = confined_directory(state.model, "model_path", model_path);

  const Expected<void> updated = call.carry_out(state, FromDirectory{directory});
  if (updated) state.weights_folder.set(model_path);
  return json_response({{"success", updated.has_value()},
                        {"message", updated ? "the weights are updated" : updated.error().message},
                        {"num_paused_requests", 0}},
                       updated ? 200 : 400);
}

HttpResponse update_weight_version(ApiState& state, const HttpRequest& request) {
  const json::object body = parse_body(request.body);
  std::vector<std::string> problems;
  FieldReader fields(body, "", problems);
  const std::string name = fields.text("new_version", 256).value_or("");
  if (name.empty()) fields.note("new_version", "must be given");
  const bool aborts = fields.boolean("abort_all_requests").value_or(true);
  fields.refuse_unknown(kVersionFields);
  require_none(problems);
  const Expected<void> aborted = aborts ? state.engine.abort_all() : Expected<void>{};
  if (aborted) state.versions.set(state.engine.weight_version(), name);
  if (!aborted) return net::error_response(503, aborted.error().message);
  return json_response(
      {{"success", true}, {"message", "the weight version is renamed"}, {"new_version", name}});
}

/// SGLang answers {success, message} with status 400 where the check fails, and checksums by rank: one
/// here. Quantised tensors, of which two forms may mean the same numbers, there are none.
HttpResponse weights_checker(ApiState& state, const HttpRequest& request) {
  constexpr auto kActions =
      std::to_array<std::string_view>({"checksum", "snapshot", "compare", "reset_tensors"});
  const json::object body = parse_body(request.body);
  std::vector<std::string> problems;
  FieldReader fields(body, "", problems);
  const auto action = fields.one_of("action", kActions);
  if (!fields.has("action")) fields.note("action", "must be given");
  fields.boolean("allow_quant_error");
  if (const json::array* skipped = fields.array("skip_tensor_list");
      skipped != nullptr && !skipped->empty())
    fields.note("skip_tensor_list", "must be empty: all tensors are looked at");
  fields.refuse_unknown(kCheckerFields);
  require_none(problems);
  const auto index = std::find(kActions.begin(), kActions.end(), *action) - kActions.begin();
  const Expected<WeightChecksums> checked =
      state.engine.check_weights(static_cast<WeightCheck>(index));
  if (!checked) {
    return json_response({{"success", false},
                          {"message", checked.error().message},
                          {"ranks", json::array()},
                          {"per_engine_checksum", nullptr}},
                         400);
  }
  json::object checksums;
  for (const TensorChecksum& tensor : *checked)
    checksums[tensor.name] = fmt::format("{:016x}", tensor.checksum);
  const std::string all = fmt::format("{:016x}", combined(*checked));
  json::object rank{{"checksums", std::move(checksums)},
                    {"per_gpu_checksum", all},
                    {"parallelism_info", {{"rank", 0}, {"size", 1}}}};
  return json_response({{"success", true},
                        {"message", fmt::format("{}: {} tensors", *action, checked->size())},
                        {"ranks", json::array{std::move(rank)}},
                        {"per_engine_checksum", all}});
}

/// Numbers of a tensor of this shape, from `next` on, as lists of lists.
json::array nested(const std::vector<std::int64_t>& shape, std::size_t dimension,
                   const float*& next) {
  json::array list;
  for (std::int64_t i = 0; i < shape[dimension]; ++i) {
    if (dimension + 1 == shape.size()) {
      list.emplace_back(*next++);
    } else {
      list.emplace_back(nested(shape, dimension + 1, next));
    }
  }
  return list;
}

/// The first rows of a tensor as numbers; SGLang's clients send a body with GET too.
HttpResponse get_weights_by_name(ApiState& state, const HttpRequest& request) {
  constexpr std::int64_t kMostRows = 1 << 20, kMostNumbers = 1 << 24;
  const json::object body = parse_optional_body(request.body);
  std::vector<std::string> problems;
  FieldReader fields(body, "", problems);
  const std::string name =
      fields.text("name", 1024).value_or(request.query_value("name").value_or(""));
  if (name.empty()) fields.note("name", "must be given");
  const std::int64_t rows = fields.integer("truncate_size", 1, kMostRows).value_or(100);
  fields.refuse_unknown(kNameFields);
  require_none(problems);
  const Expected<WeightRows> found = state.engine.read_weight(name, rows);
  if (!found) return net::error_response(400, found.error().message);
  if (std::ssize(found->values) > kMostNumbers)
    throw ConfigError(
        fmt::format("truncate_size is too large: these rows have {} numbers, {} can be told",
                    found->values.size(), kMostNumbers));
  const float* next = found->values.data();
  return json_response(nested(found->shape, 0, next));
}

/// Copies a version to where /update_weights_from_disk reads it.
HttpResponse pull_weights_of_version(ApiState& state, const HttpRequest& request) {
  const json::object body = parse_body(request.body);
  std::vector<std::string> problems;
  const FieldReader fields(body, "", problems);
  const std::string source = fields.required().text("source_dir", 4096).value_or("");
  const std::string local = fields.required().text("local_checkpoint_dir", 4096).value_or("");
  const std::int64_t version = fields.required().integer("target_version", 0, 999'999).value_or(0);
  fields.refuse_unknown(kPullFields);
  require_none(problems);
  const auto from = confined_directory(state.model, "source_dir", source);
  const auto to = confined_directory(state.model, "local_checkpoint_dir", local);
  try {
    return weight_answer({}, pull_weights(from, to, version));
  } catch (const ConfigError& error) {
    return weight_answer(failure(error.what()), "");
  }
}

/// Quantised weights would be made plain before an update and packed after it; here there are none.
HttpResponse post_process_weights(ApiState&, const HttpRequest& request) {
  const json::object body = parse_optional_body(request.body);
  std::vector<std::string> problems;
  const FieldReader fields(body, "", problems);
  for (const std::string_view name : kProcessFields) fields.boolean(name);
  fields.refuse_unknown(kProcessFields);
  require_none(problems);
  return weight_answer({}, "nothing to do: the weights are not quantised");
}

}  // namespace

void add_weights_routes(ApiState& state, std::vector<net::HttpRoute>& routes) {
  using Answer = HttpResponse (*)(ApiState&, const HttpRequest&);
  const auto add = [&](const char* method, const char* path, Answer answer) {
    routes.emplace_back(
        method, path, net::RouteClass::kWeights,
        answer_on(state.weights_thread,
                  [&state, answer](const HttpRequest& request) { return answer(state, request); }));
  };
  add("POST", "/update_weights_from_disk", update_weights_from_disk);
  add("POST", "/update_weight_version", update_weight_version);
  add("POST", "/weights_checker", weights_checker);
  add("POST", "/post_process_weights", post_process_weights);
  add("POST", "/pull_weights", pull_weights_of_version);
  for (const char* method : {"GET", "POST"})
    add(method, "/get_weights_by_name", get_weights_by_name);
}

}  // namespace slime::engine
