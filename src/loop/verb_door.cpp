#include "loop/verb_door.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/field_reader.h"
#include "core/reward_number.h"
#include "net/secret.h"

namespace slime::loop {
namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;
using net::HttpExchange;
using net::HttpRequest;
using net::HttpResponse;
using net::RouteClass;
using net::Task;

/// How long an answer is waited for in one request: below what proxies and clients give up after.
constexpr std::chrono::seconds kLongestWait{40};
constexpr int64_t kMostSamples = 256;
constexpr std::size_t kMostSampleBytes = std::size_t{8} << 20;
constexpr std::size_t kTokenBytes = 32;

constexpr auto kVerbs = std::to_array<std::string_view>(
    {"generate", "train", "drop", "update_weights", "evaluate", "save", "settle", "close"});

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

/// Whole or not at all, for the owner alone.
void write_private_file(const fs::path& path, const std::string& text) {
  const std::string part = path.string() + ".part";
  const int file = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0)
    throw ConfigError(
        fmt::format("{}: cannot be written: {}", part, std::generic_category().message(errno)));
  const bool is_whole =
      ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(file);
  if (!is_whole || ::rename(part.c_str(), path.c_str()) != 0)
    throw ConfigError(fmt::format("{}: cannot be written: {}", path.string(),
                                  std::generic_category().message(errno)));
}

json::object body_of(const HttpRequest& request) {
  if (request.body.empty()) return {};
  json::value value = parse_json(request.body, "body");
  if (!value.is_object()) throw ConfigError("body: should be a JSON object");
  return std::move(value.get_object());
}

HttpResponse json_response(const json::object& object) {
  return {.status = 200, .body = json_text(object)};
}

/// Takes the verb that the path ends with.
HttpResponse ask(VerbQueue& queue, std::string_view verb, const HttpRequest& request) {
  json::object arguments = body_of(request);
  static constexpr auto kFields = std::to_array<std::string_view>({"step"});
  const FieldReader fields(arguments, "");
  fields.refuse_unknown(kFields);
  fields.integer("step", 0);
  if (verb == "save" && queue.has("train")) {
    return net::error_response(
        409,
        "save: a rollout is being trained, and its weights are between two steps; await "
        "train() first");
  }
  const int64_t number = queue.add(std::string(verb), std::move(arguments));
  return json_response({{"request_id", std::to_string(number)}});
}

int64_t request_id_of(const FieldReader& fields) {
  const std::string text = fields.required().text("request_id", 20).value_or("");
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size())
    throw ConfigError(fmt::format("request_id {}: is no number", text));
  return number;
}

HttpResponse answer_response(VerbAnswer answer) {
  if (auto* result = std::get_if<json::object>(&answer)) return json_response(*result);
  const auto& error = std::get<VerbError>(answer);
  return json_response({{"error", error.message},
                        {"category", error.is_refusal ? "user" : "server"},
                        {"run_is_over", !error.is_refusal}});
}

Task<void> retrieve(VerbQueue& queue, HttpExchange& exchange) {
  const json::object body = body_of(exchange.request);
  const int64_t number = request_id_of(FieldReader(body, ""));
  const auto timer = std::make_shared<asio::steady_timer>(exchange.executor());
  timer->expires_after(kLongestWait);
  queue.call_when_answered(number, [timer, strand = exchange.executor()] {
    asio::post(strand, [timer] { timer->cancel(); });
  });
  exchange.on_disconnect([timer] { timer->cancel(); });
  if (!queue.answer_of(number)) {
    boost::system::error_code is_cancelled;
    co_await timer->async_wait(asio::redirect_error(asio::use_awaitable, is_cancelled));
  }
  std::optional<VerbAnswer> answer = queue.answer_of(number);
  HttpResponse response =
      answer ? answer_response(*std::move(answer))
             : json_response({{"type", "try_again"}, {"request_id", std::to_string(number)}});
  co_await exchange.send(std::move(response));
}

int64_t number_in(const HttpRequest& request, std::string_view name, int64_t otherwise) {
  const std::optional<std::string> text = request.query_value(name);
  if (!text) return otherwise;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc{} || end != text->data() + text->size() || number < 0)
    throw ConfigError(fmt::format("{}={}: should be a whole number, 0 or more", name, *text));
  return number;
}

json::object shown(const Sample& sample, const std::string& reward_key, bool has_tokens) {
  const Expected<double> number = reward_number(sample.reward, reward_key);
  json::object object;
  object["index"] = sample.ordinal;
  object["group"] = sample.group;
  object["index_in_group"] = sample.index_in_group;
  object["prompt"] = sample.prompt;
  object["response"] = sample.response;
  object["label"] = sample.label;
  object["metadata"] = sample.metadata;
  object["reward"] = number ? json::value(*number) : json::value();
  object["reward_record"] = sample.reward;
  object["status"] = to_string(sample.status);
  object["response_length"] = sample.response_length();
  object["trained_tokens"] = sample.remove_sample ? 0 : sample.effective_response_length();
  object["weight_version"] =
      sample.versions.empty() ? json::value() : json::value(sample.versions.back().version);
  if (!sample.failure.empty()) object["failure"] = sample.failure;
  if (!has_tokens) return object;
  object["prompt_length"] = sample.prompt_length;
  object["tokens"] = json::value_from(sample.tokens);
  object["log_probs"] = json::value_from(sample.log_probs);
  object["loss_mask"] = json::value_from(sample.loss_mask);
  return object;
}

/// A page of a rollout's samples, limited by number and bytes; it has at least one.
HttpResponse samples(const VerbView& view, const HttpRequest& request) {
  const int64_t step = number_in(request, "step", 0);
  const int64_t offset = number_in(request, "offset", 0);
  const int64_t limit = std::clamp<int64_t>(number_in(request, "limit", 64), 1, kMostSamples);
  const bool has_tokens = number_in(request, "tokens", 0) != 0;
  const ShownRollout rollout = view.rollout(step);
  std::string texts;
  int64_t place = 0, count = 0;
  for (const Group& group : rollout->groups) {
    for (const Sample& sample : group.samples) {
      const bool is_in = place >= offset && count < limit && texts.size() < kMostSampleBytes;
      ++place;
      if (!is_in) continue;
      if (count++ > 0) texts += ',';
      texts += json_text(shown(sample, view.reward_key, has_tokens));
    }
  }
  return {.status = 200,
          .body = fmt::format(R"({{"step":{},"total":{},"offset":{},"samples":[{}]}})", step, place,
                              offset, texts)};
}

std::vector<net::HttpRoute> routes(VerbQueue& queue, const VerbView& view) {
  const std::string root = "/api/run/v1/";
  std::vector<net::HttpRoute> all;
  for (const std::string_view verb : kVerbs) {
    all.emplace_back("POST", root + std::string(verb), RouteClass::kControl,
                     net::answer_with([&queue, verb](const HttpRequest& request) {
                       return ask(queue, verb, request);
                     }));
  }
  all.emplace_back("POST", root + "retrieve_future", RouteClass::kControl,
                   [&queue](HttpExchange& exchange) { return retrieve(queue, exchange); });
  all.emplace_back(
      "GET", root + "state", RouteClass::kControl,
      net::answer_with([&view](const HttpRequest&) { return json_response(view.state()); }));
  all.emplace_back(
      "GET", root + "config", RouteClass::kControl,
      net::answer_with([&view](const HttpRequest&) { return json_response(view.config()); }));
  all.emplace_back(
      "GET", root + "samples", RouteClass::kControl,
      net::answer_with([&view](const HttpRequest& request) { return samples(view, request); }));
  return all;
}

net::HttpServerConfig server_config(const std::string& token) {
  net::HttpServerConfig config;
  config.port = 0;
  config.access.api_key = token;
  config.serves_own_user_only = true;
  config.body_limit_bytes = std::size_t{1} << 20;
  return config;
}

}  // namespace

void require_private_folder(const fs::path& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode))
    throw ConfigError(fmt::format("--door {}: no such directory", folder.string()));
  if (status.st_uid != ::geteuid() || (status.st_mode & 077U) != 0) {
    throw ConfigError(fmt::format(
        "--door {}: others may look into it, and it holds the key of this run; use a directory of "
        "your own with mode 0700",
        folder.string()));
  }
}

void write_door(const fs::path& folder, const json::object& door) {
  write_private_file(folder / "door.json", json_text(door));
}

void write_last_words(const fs::path& folder, const std::string& message) {
  write_private_file(folder / "last_words.json", json_text(json::object{{"error", message}}));
}

VerbDoor::VerbDoor(const fs::path& folder, VerbQueue& queue, VerbView view)
    : VerbDoor(folder, queue, std::move(view), hex(net::random_bytes(kTokenBytes))) {}

VerbDoor::VerbDoor(const fs::path& folder, VerbQueue& queue, VerbView view,
                   const std::string& token)
    : file_(folder / "door.json"),
      view_(std::move(view)),
      server_(server_config(token), routes(queue, view_)) {
  require_private_folder(folder);
  server_.start();
  write_door(folder, {{"url", server_.url()}, {"token", token}, {"pid", ::getpid()}});
}

VerbDoor::~VerbDoor() {
  std::error_code ignored;
  fs::remove(file_, ignored);
  // Who waits for the last answer gets it.
  server_.stop(std::chrono::seconds(2));
}

}  // namespace slime::loop
