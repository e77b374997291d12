/// Routes that change the server: abort, pause, flush, weights. Bodies and replies: reference
/// sglang.md 1.3.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <string_view>

#include "core/error.h"
#include "core/json.h"
#include "engine/http/api_state.h"
#include "engine/http/request_body.h"

namespace slime::engine {
namespace {

using net::HttpExchange;
using net::HttpRequest;
using net::HttpResponse;
using net::RouteClass;
using net::Task;

constexpr double kMaxFlushWaitSeconds = 600;
constexpr std::chrono::milliseconds kFlushPoll{50};

/// Control calls may come without a body.
json::object parse_optional_body(const std::string& body) {
  return body.empty() ? json::object{} : parse_body(body);
}

// Fields of each body. Those that are read come first; the others are SGLang's and change nothing
// here: one process, no allocator's cache to empty, CUDA graphs that read the weights where they
// are, a KV cache whose treatment a flag decides (docs/how/engine_client.md).
constexpr auto kAbortFields =
    std::to_array<std::string_view>({"rid", "abort_all", "abort_message", "finished_reason"});
constexpr auto kPauseFields = std::to_array<std::string_view>({"mode"});
constexpr auto kContinueFields = std::to_array<std::string_view>({"torch_empty_cache"});
constexpr auto kMemoryFields = std::to_array<std::string_view>({"tags"});
constexpr auto kDiskFields = std::to_array<std::string_view>(
    {"model_path", "weight_version", "abort_all_requests", "keep_pause", "load_format", "manifest",
     //
     "is_async", "torch_empty_cache", "recapture_cuda_graph", "token_step", "flush_cache"});
constexpr auto kCheckerFields =
    std::to_array<std::string_view>({"action", "allow_quant_error", "skip_tensor_list"});
constexpr auto kVersionFields =
    std::to_array<std::string_view>({"new_version", "abort_all_requests"});

/// `done`, or what kept the engine from it.
HttpResponse answer_for(const Expected<void>& result, HttpResponse done) {
  return result ? std::move(done) : net::error_response(503, result.error().message);
}

HttpResponse abort_request(ApiState& state, const HttpRequest& request) {
  const json::object body = parse_optional_body(request.body);
  std::vector<std::string> problems;
  FieldReader fields(body, "", problems);
  const bool all = fields.boolean("abort_all").value_or(false);
  const std::string rid = fields.text("rid", 256).value_or("");
  fields.refuse_unknown(kAbortFields);
  require_none(problems);
  if (!all && rid.empty()) throw ConfigError("rid or abort_all must be given");
  // SGLang's rule: the samples of "x" are called "x_0", "x_1", ..., and "x" ends them all.
  return answer_for(all ? state.engine.abort_all() : state.engine.abort_prefix(rid),
                    {.content_type = ""});
}

HttpResponse pause_generation(ApiState& state, const HttpRequest& request) {
  const json::object body = parse_optional_body(request.body);
  std::vector<std::string> problems;
  FieldReader fields(body, "", problems);
  const std::string mode = fields.text("mode", 32).value_or("abort");
  if (mode != "abort" && mode != "retract" && mode != "in_place") {
    fields.note("mode", "must be \"abort\", \"retract\" or \"in_place\"");
  }
  fields.refuse_unknown(kPauseFields);
  require_none(problems);
  return answer_for(
      state.engine.pause(mode == "abort"     ? PauseMode::kAbort
                         : mode == "retract" ? PauseMode::kRetract
                                             : PauseMode::kInPlace),
      json_response({{"message", "generation is paused (" + mode + ")"}, {"status", "ok"}}));
}

HttpResponse continue_generation(ApiState& state, const HttpRequest& request) {
  const json::object body = parse_optional_body(request.body);
  std::vector<std::string> problems;
  const FieldReader fields(body, "", problems);
  fields.boolean("torch_empty_cache");
  fields.refuse_unknown(kContinueFields);
  require_none(problems);
  return answer_for(state.engine.resume(),
                    json_response({{"message", "generation continues"}, {"status", "ok"}}));
}

std::chrono::duration<double> flush_timeout_of(const HttpRequest& request) {
  double seconds = 0;
  if (const auto text = request.query_value("timeout")) {
    char* end = nullptr;
    seconds = std::strtod(text->c_str(), &end);
    if (text->empty() || *end != '\0' || !(seconds >= 0) || seconds > kMaxFlushWaitSeconds) {
      throw ConfigError(
          fmt::format("timeout must be a number of seconds up to {}", kMaxFlushWaitSeconds));
    }
  }
  return std::chrono::duration<double>(seconds);
}

/// SGLang's has no fields; who sends one meant something by it.
void check_flush_body(const HttpRequest& request) {
  const json::object body = parse_optional_body(request.body);
  std::vector<std::string> problems;
  const FieldReader fields(body, "", problems);
  if (body.contains("timeout"))
    fields.note("timeout", "belongs to the address: /flush_cache?timeout=SECONDS");
  fields.refuse_unknown(std::to_array<std::string_view>({"timeout"}));
  require_none(problems);
}

/// Waits on the connection, not on a control thread: whoever ends the requests needs one.
Task<void> flush_cache(ApiState& state, HttpExchange& exchange) {
  const auto deadline = std::chrono::steady_clock::now() + flush_timeout_of(exchange.request);
  check_flush_body(exchange.request);
  const auto timer = std::make_shared<boost::asio::steady_timer>(exchange.executor());
  exchange.on_disconnect([timer] { timer->cancel(); });
  HttpResponse response{.body = "The cache is flushed.\n", .content_type = "text/plain"};
  for (;;) {
    std::function<Expected<bool>()> flush = [&engine = state.engine] {
      return engine.flush_cache();
    };
    const Expected<bool> flushed = co_await compute_on(state.control_threads, std::move(flush));
    if (!flushed) response = net::error_response(503, flushed.error().message);
    if (!flushed || *flushed) break;
    if (!exchange.is_connected() || std::chrono::steady_clock::now() >= deadline) {
      response.status = 400;
      response.body = "The cache was not flushed: requests are running or waiting.\n";
      break;
    }
    timer->expires_after(kFlushPoll);
    boost::system::error_code woken;
    co_await timer->async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, woken));
  }
  co_await exchange.send(std::move(response));
}

/// Whether a call about memory is about keys and values. Weights stay where they are, because who
/// trains owns them, and recorded steps take next to nothing: their tags have nothing to do.
bool names_cache(const HttpRequest& request) {
  const json::object body = parse_optional_body(request.body);
  FieldReader(body, "").refuse_unknown(kMemoryFields);
  const json::value* tags = body.if_contains("tags");
  if (tags == nullptr || tags->is_null()) return true;
  bool found = false;
  if (!tags->is_array()) throw ConfigError("tags must be a list of words");
  for (const json::value& tag : tags->get_array()) {
    const std::string word = tag.is_string() ? std::string(tag.get_string()) : "";
    if (word != "kv_cache" && word != "weights" && word != "cuda_graph")
      throw ConfigError("tags must be among \"kv_cache\", \"weights\" and \"cuda_graph\"");
    found |= word == "kv_cache";
  }
  return found;
}

HttpResponse release_memory(ApiState& state, const HttpRequest& request) {
  return answer_for(names_cache(request) ? state.engine.sleep() : Expected<void>{},
                    json_response(nullptr));
}

HttpResponse resume_memory(ApiState& state, const HttpRequest& request) {
  return answer_for(names_cache(request) ? state.engine.wake() : Expected<void>{},
                    json_response(nullptr));
}

/// The directory behind links and "..", if it lies below one of the allowed ones.
std::filesystem::path confined(const ServedModel& model, const std::string& text) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(text, error);
  if (!error) {
    for (const std::filesystem::path& root : model.weight_roots) {
      const std::filesystem::path real_root = std::filesystem::canonical(root, error);
      if (error) continue;
      const auto [end, ignored] =
          std::mismatch(real_root.begin(), real_root.end(), path.begin(), path.end());
      if (end == real_root.end()) return path;
    }
  }
  throw ConfigError(
      "model_path does not name a directory that this server may read; `slime serve --weights-root "
      "DIR` "
      "allows those below DIR");
}

HttpResponse update_weights_from_disk(ApiState& state, const HttpRequest& request) {
  const json::object body = parse_body(request.body);
  std::vector<std::string> problems;
  FieldReader fields(body, "", problems);
  const std::string model_path = fields.text("model_path", 4096).value_or("");
  if (model_path.empty()) fields.note("model_path", "must be given");
  const auto weight_version = fields.text("weight_version", 256);
  const bool aborts = fields.boolean("abort_all_requests").value_or(false);
  const bool keeps_pause = fields.boolean("keep_pause").value_or(false);
  const std::string load_format = fields.text("load_format", 64).value_or("auto");
  if (load_format != "auto" && load_format != "safetensors") {
    fields.note("load_format", "must be \"auto\" or \"safetensors\"");
  }
  fields.refuse("manifest", "is not supported");
  fields.refuse_unknown(kDiskFields);
  require_none(problems);
  const std::filesystem::path directory = confined(state.model, model_path);

  const auto reply = [](bool success, const std::string& message) {
    return json_response({{"success", success}, {"message", message}, {"num_paused_requests", 0}},
                         success ? 200 : 400);
  };
  const WeightVersion before = state.engine.weight_version();
  const WeightVersion version = before + 1;  // updates run one at a time
  // Tokens of the new weights may be there before the engine has told that they are: the name comes
  // first. Without one, as in SGLang, they are called what the weights before them were.
  state.versions.set(version, weight_version.value_or(state.versions.name_of(before)));
  const Expected<void> updated = state.engine.update_weights(
      {.version = version,
       .source = FromDirectory{directory},
       .running = aborts ? RunningRequests::kAbort : RunningRequests::kRecompute,
       .stays_paused = keeps_pause});
  if (!updated) {
    if (state.engine.weight_version() != version) state.versions.forget(version);
    return reply(false, updated.error().message);
  }
  state.weights_folder.set(model_path);
  return reply(true, "the weights are updated");
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
  return answer_for(aborted, json_response({{"success", true},
                                            {"message", "the weight version is renamed"},
                                            {"new_version", name}}));
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

}  // namespace

void add_control_routes(ApiState& state, std::vector<net::HttpRoute>& routes) {
  using Answer = HttpResponse (*)(ApiState&, const HttpRequest&);
  const auto add = [&](boost::asio::thread_pool& pool, const char* path, Answer answer,
                       RouteClass route_class = RouteClass::kControl) {
    routes.emplace_back("POST", path, route_class,
                        answer_on(pool, [&state, answer](const HttpRequest& request) {
                          return answer(state, request);
                        }));
  };
  add(state.control_threads, "/abort_request", abort_request);
  add(state.control_threads, "/pause_generation", pause_generation);
  add(state.control_threads, "/continue_generation", continue_generation);
  add(state.control_threads, "/release_memory_occupation", release_memory);
  add(state.control_threads, "/resume_memory_occupation", resume_memory);
  add(state.weights_thread, "/update_weights_from_disk", update_weights_from_disk,
      RouteClass::kWeights);
  add(state.weights_thread, "/update_weight_version", update_weight_version, RouteClass::kWeights);
  add(state.weights_thread, "/weights_checker", weights_checker, RouteClass::kWeights);
  for (const char* method : {"GET", "POST"}) {
    routes.emplace_back(method, "/flush_cache", RouteClass::kControl,
                        [&state](HttpExchange& exchange) { return flush_cache(state, exchange); });
  }
}

}  // namespace slime::engine
