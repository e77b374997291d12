/// Routes by which trainers send weights tensor by tensor: in the request's body, or through a group of
/// torch.distributed in which this server is a rank.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>

#include "comm/rank_group.h"
#include "comm/torch_group.h"
#include "core/base64.h"
#include "core/error.h"
#include "core/json.h"
#include "engine/http/api_state.h"
#include "engine/http/request_body.h"
#include "engine/http/torch_group_request.h"
#include "engine/http/weight_call.h"
#include "model/safetensors.h"
#include "model/tensor_update.h"

namespace slime::engine {
namespace {

// Those that are read come first; the others are SGLang's and change nothing here.
constexpr auto kTensorFields = std::to_array<std::string_view>(
    {"serialized_named_tensors", "weight_version", "abort_all_requests", "load_format",
     //
     "flush_cache", "disable_draft_model", "torch_empty_cache"});
constexpr auto kDistributedFields =
    std::to_array<std::string_view>({"names", "dtypes", "shapes", "group_name", "weight_version",
                                     "abort_all_requests", "load_format",
                                     //
                                     "flush_cache", "torch_empty_cache"});

constexpr std::size_t kMostTensors = std::size_t{1} << 17;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 40;

/// The groups of this server, by name. The weights' thread.
class WeightGroups {
 public:
  std::map<std::string, std::unique_ptr<comm::TorchGroup>> by_name;
};

constexpr std::string_view kPickled =
    "is a pickle, which could run any code: it is not read. Send the bytes of a safetensors file "
    "as "
    "application/octet-stream, or their base64 in serialized_named_tensors";

/// What torch.save and ForkingPickler begin with.
bool is_pickle(std::string_view bytes) { return bytes.starts_with('\x80'); }

model::TensorUpdate tensors_in(std::string_view field, std::string_view bytes) {
  if (is_pickle(bytes)) throw ConfigError(fmt::format("{} {}", field, kPickled));
  try {
    return {model::tensors_of_safetensors(bytes)};
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{} is no safetensors file: {}", field, error.what()));
  }
}

HttpResponse take(ApiState& state, const WeightCall& call, const model::TensorUpdate& update) {
  return weight_answer(call.carry_out(state, FromTensors{&update}),
                       fmt::format("{} tensors are updated", update.tensors.size()));
}

/// A safetensors file as it is; the query says what else a body would.
HttpResponse update_from_file(ApiState& state, const HttpRequest& request) {
  const WeightCall call{.version_name = request.query_value("weight_version"),
                        .aborts_requests = request.query_value("abort_all_requests") == "true"};
  if (call.version_name && call.version_name->size() > 256)
    throw ConfigError("weight_version may have 256 bytes");
  return take(state, call, tensors_in("the body", request.body));
}

/// SGLang's clients send one element for each rank.
bool is_told_once(const std::vector<std::string>& serialized, int num_ranks) {
  return serialized.size() == 1 || (std::ssize(serialized) == num_ranks &&
                                    std::ranges::all_of(serialized, [&](const std::string& each) {
                                      return each == serialized[0];
                                    }));
}

HttpResponse update_weights_from_tensor(ApiState& state, const HttpRequest& request) {
  const std::string_view type = request.header("Content-Type").value_or("");
  if (type.starts_with("application/octet-stream")) return update_from_file(state, request);
  const json::object body = parse_body(request.body);
  std::vector<std::string> problems;
  const FieldReader fields(body, "", problems);
  const WeightCall call = WeightCall::read(fields);
  const auto format = fields.text("load_format", 256).value_or("auto");
  if (format != "auto" && format != "safetensors" && format != "direct")
    fields.note("load_format", "must be \"auto\", \"safetensors\" or \"direct\"");
  constexpr std::string_view kName = "serialized_named_tensors";
  const std::vector<std::string> serialized = fields.strings(kName);
  if (problems.empty() && !is_told_once(serialized, state.options.tp_size))
    fields.note(kName, fmt::format("must have one element, or the same {} times: whole tensors, "
                                   "of which each rank takes its slices",
                                   state.options.tp_size));
  fields.refuse_unknown(kTensorFields);
  require_none(problems);
  const auto bytes = from_base64(serialized[0]);
  if (!bytes) throw ConfigError(fmt::format("{}[0] is no base64", kName));
  return take(state, call, tensors_in(fmt::format("{}[0]", kName), *bytes));
}

HttpResponse init_group(ApiState& state, WeightGroups& groups, const HttpRequest& request) {
  const comm::TorchGroupConfig config = parse_torch_group(parse_body(request.body), state.options);
  if (groups.by_name.contains(config.name))
    throw ConfigError("group_name is that of a group which is there already; destroy it first");
  try {
    groups.by_name.emplace(config.name, comm::join_torch_group(config));
  } catch (const comm::GroupError& error) {
    return weight_answer(failure(error.what()), "");
  }
  const std::string ranks = config.num_ranks == 1 ? fmt::format("rank {}", config.rank)
                                                  : fmt::format("ranks {} to {}", config.rank,
                                                                config.rank + config.num_ranks - 1);
  return weight_answer({}, fmt::format("{} of the group {}", ranks, config.name));
}

HttpResponse destroy_group(ApiState&, WeightGroups& groups, const HttpRequest& request) {
  const json::object body = parse_optional_body(request.body);
  std::vector<std::string> problems;
  const FieldReader fields(body, "", problems);
  const std::string name = fields.text("group_name", 256).value_or(kDefaultTorchGroup);
  fields.refuse_unknown(std::to_array<std::string_view>({"group_name"}));
  require_none(problems);
  if (groups.by_name.erase(name) == 0)
    return weight_answer(failure("there is no group " + name), "");
  return weight_answer({}, "the group " + name + " is gone");
}

std::optional<at::ScalarType> dtype_of(std::string_view word) {
  constexpr std::string_view kPrefix = "torch.";
  if (word.starts_with(kPrefix)) word.remove_prefix(kPrefix.size());
  if (word == "bfloat16") return at::kBFloat16;
  if (word == "float16" || word == "half") return at::kHalf;
  if (word == "float32" || word == "float") return at::kFloat;
  return std::nullopt;
}

struct Announced {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape;
  std::int64_t num_bytes = 0;
};

/// The size of a tensor of this shape, or nothing for what is no shape or too large.
std::optional<std::int64_t> bytes_of(const json::value& shape, at::ScalarType dtype,
                                     std::vector<std::int64_t>& sizes) {
  const json::array* list = shape.if_array();
  if (list == nullptr || list->size() > 8) return std::nullopt;
  auto bytes = static_cast<std::int64_t>(c10::elementSize(dtype));
  for (const json::value& size : *list) {
    const auto number = whole_number(size);
    if (!number || *number < 1 || *number > kMostBytes / bytes) return std::nullopt;
    sizes.push_back(*number);
    bytes *= *number;
  }
  return bytes;
}

std::vector<Announced> read_announced(const FieldReader& fields) {
  const std::vector<std::string> names = fields.required().strings("names");
  const std::vector<std::string> dtypes = fields.required().strings("dtypes");
  const json::array* shapes = fields.required().array("shapes");
  if (shapes == nullptr || names.empty() || names.size() > kMostTensors ||
      names.size() != dtypes.size() || names.size() != shapes->size()) {
    fields.note("names",
                fmt::format("dtypes and shapes must have one element for each of 1 to {} tensors",
                            kMostTensors));
    return {};
  }
  std::vector<Announced> all;
  std::int64_t num_bytes = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    Announced& tensor = all.emplace_back(Announced{.name = names[i]});
    const auto dtype = dtype_of(dtypes[i]);
    tensor.dtype = dtype.value_or(at::kFloat);
    const auto bytes = bytes_of((*shapes)[i], tensor.dtype, tensor.shape);
    if (!dtype)
      fields.note("dtypes",
                  fmt::format("has \"{}\"; bfloat16, float16 and float32 are taken", dtypes[i]));
    if (!bytes) fields.note("shapes", fmt::format("has no shape of a tensor at index {}", i));
    if (!dtype || !bytes) return {};
    tensor.num_bytes = *bytes;
    num_bytes += *bytes;
    if (num_bytes > kMostBytes) {
      fields.note("shapes", "are of more bytes than any model has");
      return {};
    }
  }
  return all;
}

/// One broadcast for each tensor, or one of all their bytes, end to end.
model::TensorUpdate receive(comm::TorchGroup& group, const std::vector<Announced>& announced,
                            bool is_flat) {
  model::TensorUpdate update;
  Tensor bucket;
  if (is_flat) {
    std::int64_t num_bytes = 0;
    for (const Announced& tensor : announced) num_bytes += tensor.num_bytes;
    bucket = at::empty({num_bytes}, at::TensorOptions(at::kByte).device(group.device()));
    group.broadcast(bucket);
    bucket = bucket.cpu();  // sync: the tensors in it are taken apart here
  }
  std::int64_t offset = 0;
  for (const Announced& tensor : announced) {
    Tensor value;
    if (is_flat) {
      value = at::empty(tensor.shape, tensor.dtype);
      std::memcpy(value.data_ptr(), bucket.const_data_ptr<std::uint8_t>() + offset,
                  static_cast<std::size_t>(tensor.num_bytes));
      offset += tensor.num_bytes;
    } else {
      value = at::empty(tensor.shape, at::TensorOptions(tensor.dtype).device(group.device()));
      group.broadcast(value);
      value = value.cpu();  // sync: on the GPU there is room for one
    }
    update.tensors.emplace_back(tensor.name, std::move(value));
  }
  return update;
}

HttpResponse update_from_distributed(ApiState& state, WeightGroups& groups,
                                     const HttpRequest& request) {
  const json::object body = parse_body(request.body);
  std::vector<std::string> problems;
  const FieldReader fields(body, "", problems);
  const WeightCall call = WeightCall::read(fields);
  const std::vector<Announced> announced = read_announced(fields);
  const std::string name = fields.text("group_name", 256).value_or(kDefaultTorchGroup);
  const std::string format = fields.text("load_format", 64).value_or("");
  if (!format.empty() && format != "flattened_bucket")
    fields.note("load_format", "must be null or \"flattened_bucket\"");
  const auto group = groups.by_name.find(name);
  if (group == groups.by_name.end())
    fields.note("group_name", "is that of no group; /init_weights_update_group makes one");
  fields.refuse_unknown(kDistributedFields);
  require_none(problems);
  try {
    return take(state, call, receive(*group->second, announced, !format.empty()));
  } catch (const comm::GroupError& error) {
    groups.by_name.erase(group);
    return weight_answer(failure(fmt::format("{}; the group is given up", error.what())), "");
  }
}

}  // namespace

void add_weight_tensor_routes(ApiState& state, std::vector<net::HttpRoute>& routes) {
  const auto add = [&](const char* path, std::function<HttpResponse(const HttpRequest&)> answer) {
    routes.emplace_back("POST", path, net::RouteClass::kWeights,
                        answer_on(state.weights_thread, std::move(answer)));
  };
  add("/update_weights_from_tensor",
      [&state](const HttpRequest& request) { return update_weights_from_tensor(state, request); });
  using Answer = HttpResponse (*)(ApiState&, WeightGroups&, const HttpRequest&);
  const auto groups = std::make_shared<WeightGroups>();
  const auto add_of_groups = [&](const char* path, Answer answer) {
    add(path, [&state, groups, answer](const HttpRequest& request) {
      return answer(state, *groups, request);
    });
  };
  add_of_groups("/init_weights_update_group", init_group);
  add_of_groups("/destroy_weights_update_group", destroy_group);
  add_of_groups("/update_weights_from_distributed", update_from_distributed);
}

}  // namespace slime::engine
