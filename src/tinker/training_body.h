#pragma once

/// The body of forward_backward, in the two forms in which clients send it.
///
///   {"model_id": "session-1:train:0", "seq_id": 1, "forward_backward_input": {
///      "data": [{"model_input": {"chunks": [{"type": "encoded_text", "tokens": [5, 6, 7]}]},
///                "loss_fn_inputs": {"target_tokens": {"data": [6, 7, 8], "dtype": "int64", "shape": [3]},
///                                   "weights": {"data": [0, 1, 1], "dtype": "float32", "shape": [3]}}}],
///      "loss_fn": "cross_entropy", "loss_fn_config": {}}}
///
/// or the message ForwardBackwardRequest of Protocol Buffers, whose numbers are little-endian bytes.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/field_reader.h"
#include "core/sample.h"

namespace slime::tinker {

/// Numbers for the positions of a datum.
struct InputColumn {
  std::vector<int64_t> shape;
  std::variant<std::vector<float>, std::vector<int64_t>> values;
};

struct Datum {
  std::vector<TokenId> tokens;
  std::optional<int64_t> num_scored;  // this program's own; nothing: all positions
  std::map<std::string, InputColumn> inputs;
};

struct TrainingBody {
  std::string loss_fn;
  json::object loss_fn_config;
  std::vector<Datum> data;
};

/// Whose request it is, and whether it is without gradients.
struct TrainingHead {
  std::string model_id;
  int64_t seq_id = 0;
  bool is_forward_only = false;
};

/// Datums of a request.
inline constexpr std::size_t kMostData = 65536;

// They throw ConfigError that names the datum and the field.

/// `input`: forward_backward_input, or forward_input.
TrainingBody read_json_body(const FieldReader& input, int64_t vocab_size);
TrainingBody read_protobuf_body(std::string_view bytes, int64_t vocab_size);
/// The fields beside the data, which are not looked into.
TrainingHead read_protobuf_head(std::string_view bytes);

/// The tokens of a `model_input` or a `prompt`: its chunks, end to end.
std::vector<TokenId> read_chunks(const FieldReader& model_input, int64_t vocab_size);

}  // namespace slime::tinker
