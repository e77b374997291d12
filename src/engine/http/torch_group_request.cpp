#include "engine/http/torch_group_request.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "engine/http/request_body.h"

namespace slime::engine {
namespace {

constexpr auto kGroupFields = std::to_array<std::string_view>(
    {"master_address", "master_port", "rank_offset", "world_size", "group_name", "backend"});

std::string why_no_group(const std::string& backend, const ApiOptions& options) {
  constexpr const char* kOthers = "/update_weights_from_tensor and _from_disk need no group";
  if (backend == "gloo") return {};
  if (backend != "nccl")
    return fmt::format(R"(must be "nccl" or "gloo", not "{}"; {})", backend, kOthers);
  if (!options.has_gpu)
    return fmt::format(R"(must be "gloo": this server computes on the CPU; {})", kOthers);
  if (options.tp_size > 1)
    return fmt::format(
        R"(must be "gloo": a server of several ranks joins as all of them, and NCCL )"
        "wants a process for each; {}",
        kOthers);
  return {};
}

}  // namespace

comm::TorchGroupConfig parse_torch_group(const json::object& body, const ApiOptions& options) {
  std::vector<std::string> problems;
  const FieldReader fields(body, "", problems);
  const FieldReader required = fields.required();
  constexpr std::int64_t kMostRanks = 1 << 20;
  comm::TorchGroupConfig config;
  config.address = required.text("master_address", 256).value_or("");
  config.port = static_cast<int>(required.integer("master_port", 1, 65535).value_or(0));
  config.rank = static_cast<int>(required.integer("rank_offset", 1, kMostRanks).value_or(0));
  config.world_size = static_cast<int>(required.integer("world_size", 2, kMostRanks).value_or(0));
  config.name = fields.text("group_name", 256).value_or(kDefaultTorchGroup);
  config.num_ranks = options.tp_size;
  const std::string backend = fields.text("backend", 32).value_or("nccl");
  config.backend = backend == "nccl" ? comm::TorchBackend::kNccl : comm::TorchBackend::kGloo;
  const std::string why = why_no_group(backend, options);
  if (!why.empty()) fields.note("backend", why);
  if (problems.empty() && config.rank > config.world_size - config.num_ranks)
    fields.note("rank_offset",
                fmt::format("and tp_size ({}) must not exceed world_size", config.num_ranks));
  fields.refuse_unknown(kGroupFields);
  require_none(problems);
  return config;
}

}  // namespace slime::engine
