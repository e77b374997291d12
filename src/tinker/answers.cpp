#include "tinker/answers.h"

#include <cstring>
#include <limits>
#include <string_view>

#include "core/error.h"
#include "tinker/protobuf.h"

namespace slime::tinker {
namespace {

constexpr const char* kRecord = "ArrayRecord";
constexpr int64_t kTypeFloat32 = 1;
/// What stands where there is no token.
constexpr float kNoLogProb = -99999.0F;

json::object tensor(const std::vector<float>& values) {
  return {{"data", json::value_from(values)},
          {"dtype", "float32"},
          {"shape", json::array{values.size()}}};
}

json::value optional_numbers(const std::vector<std::optional<float>>& values) {
  json::array numbers;
  for (const std::optional<float>& each : values)
    numbers.push_back(each ? json::value(*each) : json::value());
  return numbers;
}

json::value top_tokens(const TopTokens& top) {
  json::array positions;
  for (const auto& position : top) {
    json::array tokens;
    for (const auto& [log_prob, token] : position) tokens.push_back(json::array{token, log_prob});
    positions.push_back(position.empty() ? json::value() : json::value(std::move(tokens)));
  }
  return positions;
}

json::object json_of_one(const json::object& answer) { return answer; }

json::object json_of_one(const PassAnswer& answer) {
  json::array outputs;
  for (std::size_t i = 0; i < answer.log_probs.size(); ++i) {
    json::object output{{"logprobs", tensor(answer.log_probs[i])}};
    if (!answer.elementwise_loss.empty())
      output["elementwise_loss"] = tensor(answer.elementwise_loss[i]);
    outputs.push_back(std::move(output));
  }
  json::object metrics;
  for (const auto& [name, value] : answer.metrics) metrics[name] = value;
  return {{"loss_fn_output_type", kRecord},
          {"loss_fn_outputs", std::move(outputs)},
          {"metrics", std::move(metrics)}};
}

json::object json_of_one(const SampleAnswer& answer) {
  json::array sequences;
  for (const SampleAnswer::Sequence& each : answer.sequences) {
    json::object sequence{{"stop_reason", each.is_stopped ? "stop" : "length"},
                          {"tokens", json::value_from(each.tokens)},
                          {"logprobs", json::value_from(each.log_probs)}};
    if (each.text) sequence["text"] = *each.text;
    if (answer.num_top > 0) sequence["topk_logprobs"] = top_tokens(each.top);
    sequences.push_back(std::move(sequence));
  }
  json::object made{{"type", "sample"}, {"sequences", std::move(sequences)}};
  if (answer.prompt_log_probs) made["prompt_logprobs"] = optional_numbers(*answer.prompt_log_probs);
  if (answer.num_prompt_top > 0) made["topk_prompt_logprobs"] = top_tokens(answer.prompt_top);
  return made;
}

template <typename T>
std::string_view bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// The rows of all datums, back to back.
std::string batched(const std::vector<std::vector<float>>& rows) {
  std::string data;
  std::vector<int64_t> offsets{0};
  for (const std::vector<float>& row : rows) {
    data += bytes_of(row);
    offsets.push_back(static_cast<int64_t>(data.size()));
  }
  ProtoWriter writer;
  writer.bytes(1, data);
  writer.bytes(2, bytes_of(offsets));
  writer.varint(3, kTypeFloat32);
  return writer.text();
}

std::string entry(std::string_view key, std::string_view value) {
  ProtoWriter writer;
  writer.bytes(1, key);
  writer.element(2, value);
  return writer.text();
}

/// N positions of K tokens, with placeholders where there are fewer.
std::string top_message(const TopTokens& top, int64_t num_tokens) {
  std::vector<int32_t> tokens;
  std::vector<float> log_probs;
  for (const auto& position : top) {
    for (std::size_t k = 0; k < static_cast<std::size_t>(num_tokens); ++k) {
      tokens.push_back(k < position.size() ? position[k].second : 0);
      log_probs.push_back(k < position.size() ? position[k].first : kNoLogProb);
    }
  }
  ProtoWriter writer;
  writer.bytes(1, bytes_of(tokens));
  writer.bytes(2, bytes_of(log_probs));
  writer.varint(3, static_cast<uint64_t>(num_tokens));
  writer.varint(4, top.size());
  return writer.text();
}

std::string message(const PassAnswer& answer) {
  ProtoWriter record;
  record.bytes(1, kRecord);
  record.element(2, entry("logprobs", batched(answer.log_probs)));
  if (!answer.elementwise_loss.empty())
    record.element(2, entry("elementwise_loss", batched(answer.elementwise_loss)));
  record.varint(3, answer.log_probs.size());
  ProtoWriter writer;
  writer.bytes(1, kRecord);
  writer.element(2, record.text());
  for (const auto& [name, value] : answer.metrics) {
    ProtoWriter metric;
    metric.bytes(1, name);
    metric.number64(2, value);
    writer.element(3, metric.text());
  }
  return writer.text();
}

std::string message(const SampleAnswer& answer) {
  ProtoWriter writer;
  for (const SampleAnswer::Sequence& each : answer.sequences) {
    ProtoWriter sequence;
    sequence.varint(1, each.is_stopped ? 0 : 1);
    sequence.bytes(2, bytes_of(each.tokens));
    sequence.bytes(3, bytes_of(each.log_probs));
    if (answer.num_top > 0) sequence.element(4, top_message(each.top, answer.num_top));
    writer.element(1, sequence.text());
  }
  if (answer.prompt_log_probs) {
    std::vector<float> numbers;
    for (const std::optional<float>& each : *answer.prompt_log_probs)
      numbers.push_back(each.value_or(std::numeric_limits<float>::quiet_NaN()));
    writer.bytes(2, bytes_of(numbers));
  }
  if (answer.num_prompt_top > 0)
    writer.element(3, top_message(answer.prompt_top, answer.num_prompt_top));
  writer.varint(4, static_cast<uint64_t>(answer.num_cached_tokens));
  return writer.text();
}

}  // namespace

json::object json_of(const Answer& answer) {
  return std::visit([](const auto& each) { return json_of_one(each); }, answer);
}

std::optional<std::string> protobuf_of(const Answer& answer) {
  if (const auto* pass = std::get_if<PassAnswer>(&answer)) return message(*pass);
  if (const auto* samples = std::get_if<SampleAnswer>(&answer)) return message(*samples);
  return std::nullopt;
}

PassAnswer read_pass_answer(std::string_view message) {
  constexpr const char* kWhere = "a kept answer";
  constexpr std::size_t kLongestName = 256;
  PassAnswer answer;
  const auto read_rows = [&](std::string_view bytes) {
    std::string_view data, offsets;
    ProtoReader reader(bytes, kWhere);
    while (const auto field = reader.next()) {
      if (field->number == 1) data = field->bytes();
      if (field->number == 2) offsets = field->bytes();
    }
    std::vector<std::vector<float>> rows;
    std::vector<int64_t> ends(offsets.size() / sizeof(int64_t));
    if (!ends.empty()) std::memcpy(ends.data(), offsets.data(), ends.size() * sizeof(int64_t));
    for (std::size_t i = 0; i + 1 < ends.size(); ++i) {
      const bool is_inside = ends[i] >= 0 && ends[i] <= ends[i + 1] &&
                             static_cast<std::size_t>(ends[i + 1]) <= data.size();
      if (!is_inside) throw ConfigError(std::string(kWhere) + ": offsets beyond its numbers");
      std::vector<float> row(static_cast<std::size_t>(ends[i + 1] - ends[i]) / sizeof(float));
      if (!row.empty()) std::memcpy(row.data(), data.data() + ends[i], row.size() * sizeof(float));
      rows.push_back(std::move(row));
    }
    return rows;
  };
  ProtoReader reader(message, kWhere);
  while (const auto field = reader.next()) {
    if (field->number == 2) {
      ProtoReader record(field->bytes(), kWhere);
      while (const auto inner = record.next()) {
        if (inner->number != 2) continue;
        const ProtoEntry entry = read_entry(inner->bytes(), kWhere, kLongestName);
        if (!entry.value) continue;
        auto& rows = entry.key == "logprobs" ? answer.log_probs : answer.elementwise_loss;
        rows = read_rows(entry.value->bytes());
      }
    } else if (field->number == 3) {
      const ProtoEntry entry = read_entry(field->bytes(), kWhere, kLongestName);
      const double number = entry.value ? entry.value->number64() : 0;
      answer.metrics[entry.key] = number;
    }
  }
  return answer;
}

std::size_t num_bytes(const Answer& answer) {
  constexpr std::size_t kOfOne = 512;
  std::size_t bytes = kOfOne;
  const auto add = [&bytes](const auto& rows) {
    for (const auto& row : rows) bytes += row.size() * sizeof(row.front());
  };
  if (const auto* pass = std::get_if<PassAnswer>(&answer)) {
    add(pass->log_probs);
    add(pass->elementwise_loss);
  } else if (const auto* samples = std::get_if<SampleAnswer>(&answer)) {
    for (const SampleAnswer::Sequence& each : samples->sequences) {
      bytes += kOfOne + each.tokens.size() * (sizeof(TokenId) + sizeof(float));
      add(each.top);
    }
    add(samples->prompt_top);
    if (samples->prompt_log_probs)
      bytes += samples->prompt_log_probs->size() * sizeof(std::optional<float>);
  }
  return bytes;
}

}  // namespace slime::tinker
