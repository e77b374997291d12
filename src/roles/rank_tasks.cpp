#include "roles/rank_tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

#include "config/resolved.h"
#include "core/error.h"
#include "core/field_reader.h"
#include "kernels/matrix_formats.h"
#include "net/binary.h"

namespace slime::roles {
namespace {

SaveTask save_task_from(std::string_view text) {
  try {
    const json::object object = parse_json(text, "a checkpoint to be saved").as_object();
    return {.config = {.root = std::string(object.at("root").as_string()),
                       .model_source = std::string(object.at("model_source").as_string()),
                       .save_optimizer = object.at("save_optimizer").as_bool()},
            .iteration = object.at("iteration").as_int64(),
            .run = object.at("run").as_object()};
  } catch (const std::exception& error) {
    throw BugError(fmt::format("a save says what is saved, and where: {}", error.what()));
  }
}

/// What engines store matters.
bool is_of_format(RankTask kind) {
  return kind == RankTask::kGather || kind == RankTask::kChecksums;
}

}  // namespace

std::string to_frame(const TrainerTask& task) {
  std::string frame(1, static_cast<char>(task.kind));
  if (task.kind == RankTask::kTrain) frame += train::to_frame(task.share);
  if (is_of_format(task.kind) && task.matrices != kernels::MatrixFormat::kPlain)
    frame += kernels::row_of(task.matrices).word;
  if (task.kind == RankTask::kMeet) frame += fmt::format("{} {}", task.port, task.address);
  if (task.kind == RankTask::kSave) {
    const train::CheckpointConfig& config = task.save.config;
    frame += json_text(json::object{{"root", config.root.string()},
                                    {"model_source", config.model_source.string()},
                                    {"save_optimizer", config.save_optimizer},
                                    {"iteration", task.save.iteration},
                                    {"run", task.save.run}});
  }
  return frame;
}

TrainerTask trainer_task_from(std::string_view frame) {
  check(!frame.empty(), "a task has a kind");
  constexpr std::string_view kKinds = "mtpcgwkrby";
  check(kKinds.find(frame.front()) != kKinds.npos, "a task's kind is one of RankTask");
  TrainerTask task{.kind = static_cast<RankTask>(frame.front())};
  if (task.kind == RankTask::kTrain) {
    task.share = train::share_from_frame(frame.substr(1));
  } else if (task.kind == RankTask::kSave) {
    task.save = save_task_from(frame.substr(1));
  } else if (task.kind == RankTask::kMeet) {
    const char* end = frame.data() + frame.size();
    const auto [rest, error] = std::from_chars(frame.data() + 1, end, task.port);
    check(error == std::errc{} && task.port >= 0 && rest != end && *rest == ' ' && rest + 1 != end,
          "ranks meet at a port of an address");
    task.address.assign(rest + 1, end);
  } else if (is_of_format(task.kind) && frame.size() > 1) {
    const auto formats = kernels::matrix_formats();
    const auto row = std::ranges::find(formats, frame.substr(1), &kernels::FormatRow::word);
    check(row != formats.end(), "a format of matrices has a row in the table");
    task.matrices = row->format;
  } else {
    check(frame.size() == 1, "nothing follows the kind of such a task");
  }
  return task;
}

std::string to_frame(const RankStart& start) {
  const json::object object{{"config", config::to_json(start.config)},
                            {"rank", start.rank},
                            {"address", start.address},
                            {"collective_milliseconds", start.collective_milliseconds},
                            {"num_rollouts", start.num_rollouts},
                            {"first_rollout", start.first_rollout},
                            {"plugin_logs", start.plugin_logs},
                            {"num_threads", start.num_threads},
                            {"longest_prompt", start.longest_prompt},
                            {"weights", start.weights},
                            {"adapter", start.adapter},
                            {"checkpoint", start.checkpoint},
                            {"iteration", start.iteration},
                            {"left_out", start.left_out},
                            {"checkpoints", start.checkpoints},
                            {"last_checkpoint", start.last_checkpoint}};
  return static_cast<char>(RankTask::kStart) + json_text(object);
}

namespace {

constexpr std::string_view kFirstTask = "the controller's first task";

json::object start_object(std::string_view frame, RankTask kind) {
  if (!frame.starts_with(static_cast<char>(kind)))
    throw ConfigError("the controller's first task says what the worker is to become");
  const json::value value = parse_json(frame.substr(1), kFirstTask);
  if (!value.is_object()) throw ConfigError(fmt::format("{} must be a JSON object", kFirstTask));
  return value.get_object();
}

config::RunConfig config_of(const json::object& start) {
  const json::value* config = start.if_contains("config");
  if (config == nullptr || !config->is_object())
    throw ConfigError(fmt::format("{}: config: is missing, or no object", kFirstTask));
  return config::run_config_from(config->get_object());
}

}  // namespace

std::string to_frame(const EngineStart& start) {
  const json::object object{{"config", config::to_json(start.config)},
                            {"longest_prompt", start.longest_prompt},
                            {"kv_cache_bytes", start.kv_cache_bytes},
                            {"num_threads", start.num_threads},
                            {"index", start.index},
                            {"log_folder", start.log_folder}};
  return static_cast<char>(RankTask::kEngine) + json_text(object);
}

bool is_engine_start(std::string_view frame) {
  return frame.starts_with(static_cast<char>(RankTask::kEngine));
}

EngineStart engine_start_from(std::string_view frame) {
  const json::object object = start_object(frame, RankTask::kEngine);
  const FieldReader fields = FieldReader(object, fmt::format("{}: ", kFirstTask)).required();
  const auto count = [&](std::string_view name) {
    return static_cast<int>(*fields.integer(name, 0, std::numeric_limits<int>::max()));
  };
  return {.config = config_of(object),
          .longest_prompt = *fields.integer("longest_prompt", 0),
          .kv_cache_bytes = *fields.integer("kv_cache_bytes", 0),
          .num_threads = count("num_threads"),
          .index = count("index"),
          .log_folder = *fields.text("log_folder")};
}

std::string to_frame(const EngineRankStart& start) {
  const json::object object{
      {"directory", start.directory},
      {"device", start.device},
      {"dtype", start.dtype},
      {"loads_weights", start.loads_weights},
      {"trains_adapters",
       start.trains_adapters ? config::to_json(*start.trains_adapters) : json::object()},
      {"has_codes", start.has_codes},
      {"computes_drafts", start.computes_drafts},
      {"made_up_bound", start.made_up_bound},
      {"nccl_alone", start.nccl_alone},
      {"rank", start.rank},
      {"num_ranks", start.num_ranks},
      {"port", start.port},
      {"num_threads", start.num_threads},
      {"collective_milliseconds", start.collective_milliseconds}};
  return static_cast<char>(RankTask::kFollow) + json_text(object);
}

bool is_engine_rank_start(std::string_view frame) {
  return frame.starts_with(static_cast<char>(RankTask::kFollow));
}

EngineRankStart engine_rank_start_from(std::string_view frame) {
  const json::object object = start_object(frame, RankTask::kFollow);
  const FieldReader fields = FieldReader(object, fmt::format("{}: ", kFirstTask)).required();
  const auto count = [&](std::string_view name) {
    return static_cast<int>(*fields.integer(name, 0, std::numeric_limits<int>::max()));
  };
  const json::object run = *fields.object("trains_adapters");
  return {
      .directory = *fields.text("directory"),
      .device = *fields.text("device"),
      .dtype = *fields.text("dtype"),
      .loads_weights = *fields.boolean("loads_weights"),
      .trains_adapters = run.empty() ? std::nullopt : std::optional(config::run_config_from(run)),
      .has_codes = *fields.boolean("has_codes"),
      .computes_drafts = *fields.boolean("computes_drafts"),
      .made_up_bound = *fields.number("made_up_bound", 0, 1),
      .nccl_alone = *fields.boolean("nccl_alone"),
      .rank = count("rank"),
      .num_ranks = count("num_ranks"),
      .port = count("port"),
      .num_threads = count("num_threads"),
      .collective_milliseconds = *fields.integer("collective_milliseconds", 1)};
}

std::string to_text(const EngineReady& ready) {
  return json_text(json::object{{"max_request_tokens", ready.max_request_tokens},
                                {"device", ready.device},
                                {"memory", json::value_from(ready.memory)}});
}

namespace {

json::object answer_object(std::string_view text, std::string_view what) {
  const json::value value = parse_json(text, what);
  if (!value.is_object()) throw ConfigError(fmt::format("{} must be a JSON object", what));
  return value.get_object();
}

}  // namespace

std::string to_text(const RankReady& ready) {
  return json_text(
      json::object{{"notes", json::value_from(ready.notes)}, {"memory", ready.memory}});
}

RankReady rank_ready_from(std::string_view text) {
  const json::object answer = answer_object(text, "a rank's answer");
  const FieldReader fields = FieldReader(answer, "a rank's answer: ").required();
  return {.notes = fields.strings("notes"), .memory = *fields.object("memory")};
}

std::string to_text(const report::MemoryMeasured& measured) {
  const estimate::PeakMemory& peak = measured.peak;
  return json_text(json::object{{"now", measured.now},
                                {"peak", peak.bytes},
                                {"elsewhere", peak.elsewhere},
                                {"mapped", peak.mapped},
                                {"kept", peak.kept},
                                {"tensors", peak.tensors}});
}

report::MemoryMeasured memory_measured_from(std::string_view text) {
  const json::object answer = answer_object(text, "a rank's memory");
  const FieldReader fields = FieldReader(answer, "a rank's memory: ").required();
  const auto bytes = [&fields](std::string_view name) { return *fields.integer(name, 0); };
  return {.now = bytes("now"),
          .peak = {.bytes = bytes("peak"),
                   .elsewhere = bytes("elsewhere"),
                   .mapped = bytes("mapped"),
                   .kept = bytes("kept"),
                   .tensors = bytes("tensors")}};
}

EngineReady engine_ready_from(std::string_view text) {
  constexpr std::string_view kAnswer = "an engine's first answer";
  const json::object value = answer_object(text, kAnswer);
  const FieldReader fields = FieldReader(value, fmt::format("{}: ", kAnswer)).required();
  return {.max_request_tokens = *fields.integer("max_request_tokens", 1),
          .device = *fields.text("device"),
          .memory = fields.strings("memory")};
}

RankStart rank_start_from(std::string_view frame) {
  const json::object object = start_object(frame, RankTask::kStart);
  const FieldReader fields = FieldReader(object, fmt::format("{}: ", kFirstTask)).required();
  const auto count = [&](std::string_view name) {
    return static_cast<int>(*fields.integer(name, 0, std::numeric_limits<int>::max()));
  };
  return {.config = config_of(object),
          .rank = count("rank"),
          .address = *fields.text("address"),
          .collective_milliseconds = *fields.integer("collective_milliseconds"),
          .num_rollouts = *fields.integer("num_rollouts"),
          .first_rollout = *fields.integer("first_rollout"),
          .plugin_logs = *fields.text("plugin_logs"),
          .num_threads = count("num_threads"),
          .longest_prompt = *fields.integer("longest_prompt", 0),
          .weights = *fields.text("weights"),
          .adapter = *fields.text("adapter"),
          .checkpoint = *fields.text("checkpoint"),
          .iteration = *fields.integer("iteration"),
          .left_out = static_cast<uint32_t>(count("left_out")),
          .checkpoints = *fields.text("checkpoints"),
          .last_checkpoint = *fields.integer("last_checkpoint", -1)};
}

std::string to_frame(const NamedPiece& piece) {
  const uint64_t numbers[2] = {piece.offset, piece.name.size()};
  std::string frame(reinterpret_cast<const char*>(numbers), sizeof numbers);
  frame += piece.name;
  frame += piece.bytes;
  return frame;
}

NamedPiece named_piece_from(std::string_view frame) {
  uint64_t numbers[2];
  check(frame.size() >= sizeof numbers, "a piece says where it belongs");
  std::memcpy(numbers, frame.data(), sizeof numbers);
  const std::string_view rest = frame.substr(sizeof numbers);
  check(numbers[1] <= rest.size(), "a piece has its name");
  return {
      .name = rest.substr(0, numbers[1]), .offset = numbers[0], .bytes = rest.substr(numbers[1])};
}

std::string to_frame(const WeightChecksums& checksums) {
  net::BinaryWriter out;
  for (const TensorChecksum& tensor : checksums) {
    out.put(tensor.name);
    out.put(tensor.checksum);
  }
  return out.take();
}

WeightChecksums checksums_from(std::string_view frame) {
  WeightChecksums checksums;
  try {
    for (net::BinaryReader in(frame); !in.rest().empty();) {
      TensorChecksum& tensor = checksums.emplace_back();
      in.get(tensor.name);
      in.get(tensor.checksum);
    }
  } catch (const net::FrameError&) {
    throw BugError("a rank's checksums are names and numbers");
  }
  return checksums;
}

comm::ParallelLayout layout_of(const config::ParallelFlags& config) {
  return {.dp = static_cast<int>(config.data_parallel_size()),
          .tp = static_cast<int>(config.tensor_model_parallel_size),
          .pp = static_cast<int>(config.pipeline_model_parallel_size),
          .cp = static_cast<int>(config.context_parallel_size),
          .ep = static_cast<int>(config.expert_model_parallel_size),
          .etp = static_cast<int>(config.expert_tensor_size()),
          .sequence_parallel = config.tensor_model_parallel_size > 1 && config.sequence_parallel,
          .contiguous_context = config.context_parallel_size > 1 && config.allgather_cp,
          .chunks = static_cast<int>(config.pipeline_chunks()),
          .first_layers = static_cast<int>(config.decoder_first_pipeline_num_layers.value_or(0)),
          .last_layers = static_cast<int>(config.decoder_last_pipeline_num_layers.value_or(0))};
}

}  // namespace slime::roles
