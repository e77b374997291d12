#include "tinker/training_body.h"

#include <fmt/format.h>

#include <cstring>

#include "core/error.h"
#include "tinker/protobuf.h"

namespace slime::tinker {
namespace {

constexpr std::size_t kLongestWord = 256;
constexpr std::size_t kMostInputs = 64;  // columns of a datum, fields of a loss
constexpr std::size_t kMostDimensions = 8;
constexpr const char* kTextAlone = "text alone is what this model reads";

void require_data(std::size_t count) {
  if (count == 0) throw ConfigError("data: there is none");
  if (count > kMostData)
    throw ConfigError(fmt::format("data: {} datums; at most {} in a request", count, kMostData));
}

InputColumn read_json_column(const FieldReader& tensor, const std::string& name) {
  InputColumn column;
  column.shape = tensor.numbers<int64_t>("shape");
  for (const char* sparse : {"sparse_crow_indices", "sparse_col_indices"})
    tensor.refuse(sparse, "is not here: columns are dense");
  if (name == "target_tokens") {
    column.values = tensor.required().numbers<int64_t>("data");
  } else {
    column.values = tensor.required().numbers<float>("data");
  }
  return column;
}

// Numbers of the messages' fields, by the names of the protocol.

enum RequestField : uint32_t {
  kModelId = 1,
  kSeqId = 2,
  kData = 3,
  kLossFn = 4,
  kLossFnConfig = 5,
  kForwardOnly = 6,
  kLossFnConfigV2 = 7
};
enum DatumField : uint32_t { kModelInput = 1, kLossFnInputs = 2 };
enum ChunkField : uint32_t { kEncodedText = 1, kImage = 2, kSound = 3 };
enum TensorField : uint32_t { kDense = 1, kSparse = 2, kDtype = 3, kShape = 4 };
enum ConfigField : uint32_t { kNumber = 1, kText = 2 };
enum Dtype : int64_t { kFloat32 = 1, kInt64 = 2, kInt32 = 3, kBfloat16 = 4 };

/// The elements of little-endian bytes.
template <typename T>
std::vector<T> elements(std::string_view bytes, std::string_view where) {
  if (bytes.size() % sizeof(T) != 0)
    throw ConfigError(
        fmt::format("{}: {} bytes are no numbers of {}", where, bytes.size(), sizeof(T)));
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

InputColumn read_tensor(std::string_view bytes, const std::string& where) {
  InputColumn column;
  std::string_view dense;
  int64_t dtype = 0;
  ProtoReader reader(bytes, where);
  while (const auto field = reader.next()) {
    if (field->number == kDense) dense = field->bytes();
    if (field->number == kSparse) throw ConfigError(where + ": is sparse; columns are dense here");
    if (field->number == kDtype) dtype = field->integer();
    if (field->number == kShape) field->add_integers(column.shape);
    if (column.shape.size() > kMostDimensions)
      throw ConfigError(fmt::format("{}: has {} dimensions or more", where, column.shape.size()));
  }
  if (dtype == kFloat32) {
    column.values = elements<float>(dense, where);
  } else if (dtype == kInt64) {
    column.values = elements<int64_t>(dense, where);
  } else if (dtype == kInt32) {
    const std::vector<int32_t> narrow = elements<int32_t>(dense, where);
    column.values = std::vector<int64_t>(narrow.begin(), narrow.end());
  } else if (dtype == kBfloat16) {
    std::vector<float> values;
    for (const uint16_t half : elements<uint16_t>(dense, where)) {
      const uint32_t bits = uint32_t{half} << 16;
      float value = 0;
      std::memcpy(&value, &bits, sizeof value);
      values.push_back(value);
    }
    column.values = std::move(values);
  } else {
    throw ConfigError(fmt::format("{}: has no type of numbers ({})", where, dtype));
  }
  return column;
}

void add_chunk(std::string_view bytes, int64_t vocab_size, const std::string& where,
               std::vector<TokenId>& tokens) {
  ProtoReader chunk(bytes, where);
  while (const auto field = chunk.next()) {
    if (field->number == kImage || field->number == kSound)
      throw ConfigError(fmt::format("{}: has {}: {}", where,
                                    field->number == kImage ? "an image" : "sound", kTextAlone));
    if (field->number != kEncodedText) continue;
    ProtoReader text(field->bytes(), where);
    while (const auto inner = text.next()) {
      if (inner->number != 1) continue;
      for (const int32_t token : elements<int32_t>(inner->bytes(), where)) {
        if (token < 0 || token >= vocab_size)
          throw ConfigError(
              fmt::format("{}: {} is no token; the vocabulary has {}", where, token, vocab_size));
        tokens.push_back(token);
      }
    }
  }
}

Datum read_protobuf_datum(std::string_view bytes, int64_t vocab_size, const std::string& where) {
  Datum datum;
  ProtoReader reader(bytes, where);
  while (const auto field = reader.next()) {
    if (field->number == kModelInput)
      add_chunk(field->bytes(), vocab_size, where + ".model_input", datum.tokens);
    if (field->number != kLossFnInputs) continue;
    const std::string inputs = where + ".loss_fn_inputs";
    const ProtoEntry entry = read_entry(field->bytes(), inputs, kLongestWord);
    if (!entry.value) throw ConfigError(fmt::format("{}.{}: is empty", inputs, entry.key));
    datum.inputs[entry.key] =
        read_tensor(entry.value->bytes(), fmt::format("{}.{}", inputs, entry.key));
    if (datum.inputs.size() > kMostInputs)
      throw ConfigError(fmt::format("{}: more than {} columns", inputs, kMostInputs));
  }
  return datum;
}

json::value config_value(const ProtoField& field, std::string_view where) {
  json::value value = 0.0;
  ProtoReader reader(field.bytes(), where);
  while (const auto inner = reader.next()) {
    if (inner->number == kNumber) value = inner->number64();
    if (inner->number == kText) value = inner->text(kLongestWord);
  }
  return value;
}

}  // namespace

TrainingBody read_json_body(const FieldReader& input, int64_t vocab_size) {
  const FieldReader plain(input.raw(), "");
  TrainingBody body;
  body.loss_fn = plain.text("loss_fn", kLongestWord).value_or("cross_entropy");
  if (const json::object* config = plain.object("loss_fn_config")) body.loss_fn_config = *config;
  const std::vector<FieldReader> data = plain.required().list("data");
  require_data(data.size());
  for (const FieldReader& each : data) {
    Datum datum;
    datum.tokens = read_chunks(*each.required().fields("model_input"), vocab_size);
    datum.num_scored = each.integer("num_scored", 1, static_cast<int64_t>(datum.tokens.size()));
    const auto inputs = each.required().fields("loss_fn_inputs");
    for (const auto& [name, tensor] : inputs->raw()) {
      if (const auto fields = inputs->fields(name))
        datum.inputs[std::string(name)] = read_json_column(*fields, std::string(name));
    }
    body.data.push_back(std::move(datum));
  }
  return body;
}

TrainingBody read_protobuf_body(std::string_view bytes, int64_t vocab_size) {
  TrainingBody body;
  json::object newer;
  ProtoReader reader(bytes, "body");
  while (const auto field = reader.next()) {
    if (field->number == kData) {
      const std::string where = fmt::format("data[{}]", body.data.size());
      if (body.data.size() == kMostData) require_data(kMostData + 1);
      body.data.push_back(read_protobuf_datum(field->bytes(), vocab_size, where));
    } else if (field->number == kLossFn) {
      body.loss_fn = field->text(kLongestWord);
    } else if (field->number == kLossFnConfig) {
      const ProtoEntry entry = read_entry(field->bytes(), "loss_fn_config", kLongestWord);
      body.loss_fn_config[entry.key] = entry.value ? entry.value->number64() : 0.0;
    } else if (field->number == kLossFnConfigV2) {
      const ProtoEntry entry = read_entry(field->bytes(), "loss_fn_config", kLongestWord);
      newer[entry.key] =
          entry.value ? config_value(*entry.value, "loss_fn_config") : json::value(0.0);
    }
    if (body.loss_fn_config.size() > kMostInputs || newer.size() > kMostInputs)
      throw ConfigError(fmt::format("loss_fn_config: more than {} fields", kMostInputs));
  }
  for (const auto& [name, value] : newer) body.loss_fn_config[name] = value;
  require_data(body.data.size());
  return body;
}

TrainingHead read_protobuf_head(std::string_view bytes) {
  TrainingHead head;
  ProtoReader reader(bytes, "body");
  while (const auto field = reader.next()) {
    if (field->number == kModelId) head.model_id = field->text(kLongestWord);
    if (field->number == kSeqId) head.seq_id = field->integer();
    if (field->number == kForwardOnly) head.is_forward_only = field->boolean();
  }
  if (head.seq_id < 0) throw ConfigError(fmt::format("seq_id {}: is 0 or more", head.seq_id));
  return head;
}

std::vector<TokenId> read_chunks(const FieldReader& model_input, int64_t vocab_size) {
  std::vector<TokenId> tokens;
  for (const FieldReader& chunk : model_input.required().list("chunks")) {
    const std::string type = chunk.text("type").value_or("encoded_text");
    if (type != "encoded_text")
      throw ConfigError(fmt::format("a chunk of type {}: {}", type, kTextAlone));
    const std::vector<TokenId> more = chunk.required().token_ids("tokens", vocab_size);
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  return tokens;
}

}  // namespace slime::tinker
