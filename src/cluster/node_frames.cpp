#include "cluster/node_frames.h"

#include <limits>

#include "core/error.h"
#include "core/field_reader.h"
#include "core/json.h"

namespace slime::cluster {
namespace {

constexpr int kMostDevices = 4096;

template <typename Read>
auto read_object(std::string_view frame, std::string_view what, const Read& read) {
  const json::value value = parse_json(frame, what);
  if (!value.is_object()) throw ConfigError(std::string(what) + " must be a JSON object");
  return read(FieldReader(value.get_object(), std::string(what) + ": ").required(),
              FieldReader(value.get_object(), std::string(what) + ": "));
}

}  // namespace

std::string to_frame(const NodeHello& hello) {
  return json_text(json::object{{"program", hello.program},
                                {"host", hello.host},
                                {"rank", hello.rank},
                                {"num_devices", hello.num_devices}});
}

std::string to_frame(const WorkerHello& hello) {
  return json_text(json::object{{"worker", hello.worker}, {"is_data", hello.is_data}});
}

std::string to_frame(const StartFrame& start) {
  return json_text(json::object{{"worker", start.worker},
                                {"name", start.order.name},
                                {"device", start.order.place.device},
                                {"num_devices", start.order.place.num_devices},
                                {"command", json::value_from(start.order.command)},
                                {"epoch", start.order.identity.epoch},
                                {"log", start.order.log.string()},
                                {"has_data", start.order.has_data}});
}

std::string to_frame(const WorkerNews& news) {
  return json_text(
      json::object{{"worker", news.worker}, {"text", news.text}, {"last_lines", news.last_lines}});
}

NodeHello node_hello_from(std::string_view frame) {
  return read_object(frame, "a node's first frame", [](const auto& fields, const auto&) {
    return NodeHello{
        .program = *fields.text("program"),
        .host = *fields.text("host"),
        .rank = static_cast<int>(*fields.integer("rank", 1, std::numeric_limits<int>::max())),
        .num_devices = static_cast<int>(*fields.integer("num_devices", 0, kMostDevices))};
  });
}

WorkerHello worker_hello_from(std::string_view frame) {
  return read_object(frame, "a worker's first frame", [](const auto& fields, const auto&) {
    return WorkerHello{.worker = *fields.integer("worker", 0),
                       .is_data = *fields.boolean("is_data")};
  });
}

StartFrame start_from(std::string_view frame) {
  return read_object(frame, "an order to start a worker", [](const auto& fields, const auto& open) {
    StartFrame start{
        .worker = *fields.integer("worker", 0),
        .order = {.name = *fields.text("name"),
                  .place = {.device = static_cast<int>(*fields.integer("device", -1, kMostDevices)),
                            .num_devices =
                                static_cast<int>(*fields.integer("num_devices", 1, kMostDevices))},
                  .command = open.strings("command"),
                  .identity = {.token = {}, .epoch = *fields.integer("epoch", 0)},
                  .log = *fields.text("log"),
                  .has_data = *fields.boolean("has_data")}};
    fields.expect(!start.order.command.empty(), "command", "must have a program");
    return start;
  });
}

WorkerNews worker_news_from(std::string_view frame) {
  return read_object(frame, "a node's news", [](const auto& fields, const auto&) {
    return WorkerNews{.worker = *fields.integer("worker", 0),
                      .text = *fields.text("text"),
                      .last_lines = *fields.text("last_lines")};
  });
}

}  // namespace slime::cluster
